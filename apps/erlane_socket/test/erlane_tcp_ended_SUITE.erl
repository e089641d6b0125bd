%% SPDX-License-Identifier: Apache-2.0
%% @doc Sockets whose connection has ended while they were passive. Like the port of inet's
%% driver such a socket stays its owner's, with its options and figures, until it is closed,
%% set active, or the owner ends. The expectations are stock gen_tcp's answers.
-module(erlane_tcp_ended_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, groups/0, init_per_group/2, end_per_group/2, end_per_testcase/2]).
-export([
    calls/1, recv_and_send/1, kernel_options/1, active_ends_it/1, active_not_exiting/1,
    told_once/1, new_owner/1, owner_dies/1, closed_is_gone/1, active_end_is_gone/1,
    end_read_again/1, unrecv_after_end/1, blocked_sender_reset/1, queue_reset/1,
    delayed_after_shutdown/1, delayed_then_shutdown/1, empty_sends_count/1,
    empty_send_above_high/1
]).

-import(erlane_ct, [fed/2, pair/2, async/1, await/1, blocked/1, next/1, silence/1, kill/1]).

suite() -> [{timetrap, {seconds, 30}}].

all() -> [{group, stock}, {group, erlane}].

groups() ->
    erlane_ct:groups([
        calls, recv_and_send, kernel_options, active_ends_it, active_not_exiting,
        told_once, new_owner, owner_dies, closed_is_gone, active_end_is_gone,
        end_read_again, unrecv_after_end, blocked_sender_reset, queue_reset,
        delayed_after_shutdown, delayed_then_shutdown, empty_sends_count,
        empty_send_above_high
    ]).

init_per_group(Group, Config) -> erlane_ct:init_group(Group, Config).
end_per_group(Group, Config) -> erlane_ct:end_group(Group, Config).
end_per_testcase(_Case, _Config) -> erlane_ct:cleanup().

%%% Ways to end

-define(CLOSED, {error, closed}).
-define(RESET, {error, econnreset}).
-define(NOTCONN, {error, enotconn}).
-define(SMALL, [{sndbuf, 4096}, {recbuf, 4096}]).

fin(Peer) -> gen_tcp:close(Peer).

reset(Peer) ->
    ok = inet:setopts(Peer, [{linger, {true, 0}}]),
    gen_tcp:close(Peer).

%% Sends until that fails: the first answer may still be ok.
send_fails(S) ->
    case gen_tcp:send(S, "x") of
        ok -> send_fails(S);
        Error -> Error
    end.

%% {Name, options, how it ends and what the call that meets the end answers,
%% then two answers of recv and of send}.
ends() ->
    [
        {eof, [], fun(P, S) -> fin(P), gen_tcp:recv(S, 0) end, ?CLOSED,
            [?NOTCONN, ?NOTCONN], [?CLOSED, ?NOTCONN]},
        {eof_in_packet, [{packet, 4}],
            fun(P, S) -> ok = gen_tcp:send(P, <<0, 0>>), fin(P), gen_tcp:recv(S, 0) end, ?CLOSED,
            [?NOTCONN, ?NOTCONN], [?CLOSED, ?NOTCONN]},
        {eof_in_http, [{packet, http}],
            fun(P, S) -> ok = gen_tcp:send(P, "GET"), fin(P), gen_tcp:recv(S, 0) end, ?CLOSED,
            [?NOTCONN, ?NOTCONN], [?CLOSED, ?NOTCONN]},
        {reset, [], fun(P, S) -> reset(P), gen_tcp:recv(S, 0) end, ?CLOSED,
            [?NOTCONN, ?NOTCONN], [?CLOSED, ?NOTCONN]},
        {reset_shown, [{show_econnreset, true}],
            fun(P, S) -> reset(P), gen_tcp:recv(S, 0) end, ?RESET,
            [?NOTCONN, ?NOTCONN], [?NOTCONN, ?NOTCONN]},
        {send, [], fun(P, S) -> reset(P), send_fails(S) end, ?CLOSED,
            [?CLOSED, ?NOTCONN], [?NOTCONN, ?NOTCONN]},
        {send_shown, [{show_econnreset, true}],
            fun(P, S) -> reset(P), send_fails(S) end, ?RESET,
            [?RESET, ?NOTCONN], [?NOTCONN, ?NOTCONN]},
        {shutdown, [], fun(_, S) -> ok = gen_tcp:shutdown(S, write), send_fails(S) end, ?CLOSED,
            [?CLOSED, ?NOTCONN], [?NOTCONN, ?NOTCONN]},
        {too_long, [{packet, 4}, {packet_size, 10}],
            fun(P, S) -> ok = gen_tcp:send(P, <<100:32>>), gen_tcp:recv(S, 0) end,
            {error, emsgsize}, [?NOTCONN, ?NOTCONN], [?NOTCONN, ?NOTCONN]},
        {send_timeout, [{send_timeout, 10}, {send_timeout_close, true}, {high_watermark, 9},
                        {low_watermark, 9} | ?SMALL],
            fun(_, S) ->
                ok = gen_tcp:send(S, binary:copy(<<0>>, 8 bsl 20)),
                gen_tcp:send(S, "x")
            end, {error, timeout}, [?NOTCONN, ?NOTCONN], [?NOTCONN, ?NOTCONN]}
    ].

%% A socket that has ended in the way of that name.
ended(Config, Name) ->
    {Name, Opts, How, Answer, _, _} = lists:keyfind(Name, 1, ends()),
    {Peer, S} = fed(Config, Opts),
    ?assertEqual({Name, Answer}, {Name, How(Peer, S)}),
    S.

names() -> [element(1, End) || End <- ends()].

has_ended(S) -> erlane_ct:wait_until(fun() -> inet:sockname(S) =:= {error, ebadf} end).

%%% Cases

%% What each call answers, whichever way it ended.
calls(Config) ->
    Calls = [
        {getopts, fun(S) -> inet:getopts(S, [mode, active, deliver]) end,
            {ok, [{mode, binary}, {active, false}, {deliver, term}]}},
        {getopts_of_kernel, fun(S) -> inet:getopts(S, [nodelay, active, recbuf]) end,
            {ok, [{active, false}]}},
        {getopts_raw, fun(S) -> inet:getopts(S, [{raw, 1, 9, 4}]) end, {ok, []}},
        {getopts_fd, fun(S) -> inet:getopts(S, [fd]) end, {error, einval}},
        {getopts_unknown, fun(S) -> inet:getopts(S, [no_option]) end, {error, einval}},
        {setopts, fun(S) ->
            {inet:setopts(S, [{packet, 2}, {buffer, 77}]), inet:getopts(S, [packet, buffer])}
        end, {ok, {ok, [{packet, 2}, {buffer, 77}]}}},
        {setopts_watermarks, fun(S) ->
            {inet:setopts(S, [{high_watermark, 5}]), inet:getopts(S, [low_watermark])}
        end, {ok, {ok, [{low_watermark, 5}]}}},
        {setopts_passive, fun(S) -> {inet:setopts(S, [{active, false}]), erlane_ct:flush()} end,
            {ok, []}},
        {setopts_unknown, fun(S) -> inet:setopts(S, [{no_option, 1}]) end, {error, einval}},
        {getstat, fun(S) -> inet:getstat(S, [send_pend, recv_cnt]) end,
            {ok, [{send_pend, 0}, {recv_cnt, 0}]}},
        {unrecv, fun(S) -> gen_tcp:unrecv(S, "x") end, ?NOTCONN},
        {shutdown_read, fun(S) -> gen_tcp:shutdown(S, read) end, ?NOTCONN},
        {shutdown_write, fun(S) -> gen_tcp:shutdown(S, write) end, ?NOTCONN},
        {sendfile, fun(S) -> file:sendfile("/etc/hostname", S) end, ?NOTCONN},
        {accept, fun(S) -> gen_tcp:accept(S, 10) end, {error, einval}},
        {sockname, fun(S) -> inet:sockname(S) end, {error, ebadf}},
        {socknames, fun(S) -> inet:socknames(S) end, {error, exbadport}},
        {port, fun(S) -> inet:port(S) end, {error, ebadf}},
        {peername, fun(S) -> inet:peername(S) end, ?NOTCONN},
        {controlling_process, fun(S) -> gen_tcp:controlling_process(S, self()) end, ok},
        {info, fun(S) -> maps:with([owner], inet:info(S)) end, #{owner => self()}},
        {close, fun(S) -> {gen_tcp:close(S), gen_tcp:close(S)} end, {ok, ok}}
    ],
    [
        ?assertEqual({End, Name, Answer}, {End, Name, Call(ended(Config, End))})
     || End <- names(), {Name, Call, Answer} <- Calls
    ].

%% The call that has not been told says closed, later ones enotconn.
recv_and_send(Config) ->
    Recv = fun(S) -> gen_tcp:recv(S, 0, 10) end,
    Send = fun(S) -> gen_tcp:send(S, "x") end,
    [
        begin
            ?assertEqual({End, Recvs}, {End, twice(Recv, ended(Config, End))}),
            ?assertEqual({End, Sends}, {End, twice(Send, ended(Config, End))}),
            ?assertEqual({End, Sends},
                         {End, twice(fun(S) -> gen_tcp:send(S, "") end, ended(Config, End))}),
            %% A recv that was told speaks for send, too.
            [First | _] = Recvs,
            First =:= ?NOTCONN orelse
                ?assertEqual({End, [First, ?NOTCONN]},
                             {End, [F(S) || S <- [ended(Config, End)], F <- [Recv, Send]]})
        end
     || {End, _, _, _, Recvs, Sends} <- ends()
    ].

twice(Call, S) -> [Call(S), Call(S)].

%% Those whose refusal gen_tcp hides are taken, the others are not.
kernel_options(Config) ->
    Values = [
        {nodelay, true, ok}, {keepalive, true, ok}, {recbuf, 5000, ok}, {sndbuf, 5000, ok},
        {linger, {true, 3}, ok}, {reuseaddr, true, ok}, {dontroute, true, ok},
        {tos, 8, {error, einval}}, {priority, 3, {error, einval}}, {ttl, 8, {error, einval}},
        {recvtos, true, {error, einval}}, {bind_to_device, <<"lo">>, {error, einval}}
    ],
    [
        ?assertEqual({Key, Answer}, {Key, inet:setopts(ended(Config, eof), [{Key, Value}])})
     || {Key, Value, Answer} <- Values
    ],
    ?assertEqual(ok, inet:setopts(ended(Config, eof), [{raw, 6, 1, <<1:32/native>>}])).

%% Set active, it tells its end, and that was the last of it.
active_ends_it(Config) ->
    [
        begin
            S = ended(Config, End),
            ?assertEqual({End, Active, ok}, {End, Active, inet:setopts(S, [{active, Active}])}),
            _ = End =:= send_shown andalso ?assertEqual({tcp_error, S, econnreset}, next(S)),
            ?assertEqual({tcp_closed, S}, next(S)),
            ?assertEqual({error, einval}, inet:getopts(S, [active])),
            ?assertEqual(?CLOSED, gen_tcp:send(S, "x")),
            ?assertEqual(?CLOSED, gen_tcp:recv(S, 0)),
            silence(S)
        end
     || End <- names(), Active <- [once, true, 3]
    ],
    S = ended(Config, eof),
    ?assertEqual(ok, inet:setopts(S, [{active, 0}])),
    ?assertEqual({tcp_passive, S}, next(S)),
    ?assertEqual({ok, [{active, false}]}, inet:getopts(S, [active])).

%% With exit_on_close false it stays even then.
active_not_exiting(Config) ->
    {Peer, S} = fed(Config, [{exit_on_close, false}]),
    reset(Peer),
    ?assertEqual(?CLOSED, send_fails(S)),
    ok = inet:setopts(S, [{active, once}]),
    ?assertEqual({tcp_closed, S}, next(S)),
    ?assertEqual({ok, [{active, once}]}, inet:getopts(S, [active])),
    ?assertEqual(?CLOSED, gen_tcp:recv(S, 0)),
    ?assertEqual(?NOTCONN, gen_tcp:recv(S, 0)),
    ?assertEqual(ok, gen_tcp:close(S)).

%% tcp_closed comes once, whatever meets the end after that.
told_once(Config) ->
    {Peer, S} = fed(Config, [{exit_on_close, false}, {active, true}]),
    fin(Peer),
    ?assertEqual({tcp_closed, S}, next(S)),
    ?assertEqual(?CLOSED, send_fails(S)),
    ?assertEqual(?CLOSED, gen_tcp:send(S, "x")),
    ?assertEqual(?NOTCONN, gen_tcp:send(S, "x")),
    silence(S),
    %% recv tells it to its caller alone; then {active, once} tells the owner.
    {Peer2, S2} = fed(Config, [{exit_on_close, false}]),
    fin(Peer2),
    ?assertEqual(?CLOSED, gen_tcp:recv(S2, 0)),
    ok = inet:setopts(S2, [{active, once}]),
    ?assertEqual({tcp_closed, S2}, next(S2)),
    ok = inet:setopts(S2, [{active, once}]),
    silence(S2).

new_owner(Config) ->
    S = ended(Config, eof),
    Stranger = async(fun() -> gen_tcp:controlling_process(S, self()) end),
    ?assertEqual({error, not_owner}, await(Stranger)),
    ?assertEqual({error, badarg}, gen_tcp:controlling_process(S, dead())),
    Owner = async(fun() ->
        receive go -> ok end,
        ok = inet:setopts(S, [{active, once}]),
        next(S)
    end),
    ?assertEqual(ok, gen_tcp:controlling_process(S, Owner)),
    ?assertEqual({error, not_owner}, gen_tcp:controlling_process(S, self())),
    ?assertEqual(ok, inet:setopts(S, [{packet, 4}])),
    Owner ! go,
    ?assertEqual({tcp_closed, S}, await(Owner)),
    ?assertEqual({error, closed}, gen_tcp:controlling_process(S, self())).

dead() ->
    {Pid, Ref} = spawn_monitor(fun() -> ok end),
    receive {'DOWN', Ref, process, Pid, _} -> Pid after 5000 -> error(alive) end.

owner_dies(Config) ->
    S = ended(Config, eof),
    Owner = async(fun() -> receive never -> ok end end),
    ok = gen_tcp:controlling_process(S, Owner),
    ?assertEqual({ok, [{packet, 0}]}, inet:getopts(S, [packet])),
    ok = kill(Owner),
    gone(S).

%% Nothing is left of it.
gone(S) ->
    Answers = [
        {send, ?CLOSED, gen_tcp:send(S, "x")}, {recv, ?CLOSED, gen_tcp:recv(S, 0, 10)},
        {unrecv, ?CLOSED, gen_tcp:unrecv(S, "x")},
        {shutdown, ?CLOSED, gen_tcp:shutdown(S, write)},
        {accept, ?CLOSED, gen_tcp:accept(S, 10)},
        {controlling_process, ?CLOSED, gen_tcp:controlling_process(S, self())},
        {sendfile, {error, einval}, file:sendfile("/etc/hostname", S)},
        {setopts, {error, einval}, inet:setopts(S, [{active, once}])},
        {getopts, {error, einval}, inet:getopts(S, [active])},
        {getstat, {error, einval}, inet:getstat(S)},
        {sockname, {error, einval}, inet:sockname(S)},
        {peername, {error, einval}, inet:peername(S)},
        {port, {error, einval}, inet:port(S)}
    ],
    [?assertEqual({Call, Expected}, {Call, Answer}) || {Call, Expected, Answer} <- Answers],
    silence(S).

closed_is_gone(Config) ->
    [begin S = ended(Config, End), ok = gen_tcp:close(S), gone(S) end || End <- names()].

active_end_is_gone(Config) ->
    [
        begin
            {Peer, S} = fed(Config, [{active, Active}]),
            fin(Peer),
            ?assertEqual({tcp_closed, S}, next(S)),
            gone(S)
        end
     || Active <- [true, once, 5]
    ].

%% exit_on_close set after the end: the next who reads ends the socket.
end_read_again(Config) ->
    Ended = fun() ->
        {Peer, S} = fed(Config, [{exit_on_close, false}]),
        fin(Peer),
        ?assertEqual(?CLOSED, gen_tcp:recv(S, 0)),
        ?assertEqual(?CLOSED, gen_tcp:recv(S, 0)),
        ok = inet:setopts(S, [{exit_on_close, true}]),
        S
    end,
    S1 = Ended(),
    ?assertEqual(?CLOSED, gen_tcp:recv(S1, 0)),
    ?assertEqual(?NOTCONN, gen_tcp:recv(S1, 0)),
    S2 = Ended(),
    ok = inet:setopts(S2, [{active, true}]),
    ?assertEqual({tcp_closed, S2}, next(S2)),
    ?assertEqual(?CLOSED, gen_tcp:send(S2, "x")).

%% What was put back after the end is read before the end comes again.
unrecv_after_end(Config) ->
    Ended = fun() ->
        {Peer, S} = fed(Config, [{exit_on_close, false}]),
        fin(Peer),
        ?assertEqual(?CLOSED, gen_tcp:recv(S, 0)),
        ok = gen_tcp:unrecv(S, "uv"),
        S
    end,
    S1 = Ended(),
    ?assertEqual({ok, <<"uv">>}, gen_tcp:recv(S1, 0)),
    ?assertEqual(?CLOSED, gen_tcp:recv(S1, 0)),
    %% More than there is can never come, and then it is lost.
    S2 = Ended(),
    ?assertEqual(?CLOSED, gen_tcp:recv(S2, 4)),
    ?assertEqual(?CLOSED, gen_tcp:recv(S2, 0)),
    S3 = Ended(),
    ok = inet:setopts(S3, [{active, true}]),
    ?assertEqual({tcp, S3, <<"uv">>}, next(S3)).

%%% Sending

%% Who waits in send is told what happened, and nobody a second time.
blocked_sender_reset(Config) ->
    Run = fun(Opts) ->
        {Peer, S} = fed(Config, Opts ++ [{high_watermark, 9}, {low_watermark, 9} | ?SMALL]),
        ok = gen_tcp:send(S, binary:copy(<<0>>, 8 bsl 20)),
        Sender = async(fun() -> gen_tcp:send(S, "x") end),
        blocked(Sender),
        reset(Peer),
        {S, await(Sender)}
    end,
    {S1, ?CLOSED} = Run([]),
    ?assertEqual([?NOTCONN, ?CLOSED, ?NOTCONN],
                 [gen_tcp:send(S1, "x"), gen_tcp:recv(S1, 0), gen_tcp:recv(S1, 0)]),
    {S2, ?RESET} = Run([{show_econnreset, true}]),
    ?assertEqual([?NOTCONN, ?RESET, ?NOTCONN],
                 [gen_tcp:send(S2, "x"), gen_tcp:recv(S2, 0), gen_tcp:recv(S2, 0)]).

%% Nobody waits when the queue meets the end: the next send and the next recv tell.
queue_reset(Config) ->
    {Peer, S} = fed(Config, [{high_watermark, 1 bsl 24} | ?SMALL]),
    ok = gen_tcp:send(S, binary:copy(<<0>>, 8 bsl 20)),
    reset(Peer),
    ok = has_ended(S),
    ?assertEqual([?CLOSED, ?NOTCONN, ?CLOSED, ?NOTCONN],
                 [gen_tcp:send(S, "x"), gen_tcp:send(S, "x"), gen_tcp:recv(S, 0, 0),
                  gen_tcp:recv(S, 0, 0)]).

%% A delayed send is ok at once; that it failed is the next one's answer.
delayed_after_shutdown(Config) ->
    Run = fun(Opts, Fun) ->
        {_Peer, S} = fed(Config, [{delay_send, true} | Opts]),
        ok = gen_tcp:shutdown(S, write),
        ?assertEqual(ok, gen_tcp:send(S, "x")),
        ok = has_ended(S),
        [F(S) || F <- Fun]
    end,
    Send = fun(S) -> gen_tcp:send(S, "x") end,
    Recv = fun(S) -> gen_tcp:recv(S, 0, 0) end,
    ?assertEqual([?CLOSED, ?NOTCONN, ?CLOSED, ?NOTCONN], Run([], [Send, Send, Recv, Recv])),
    ?assertEqual([?CLOSED, ?NOTCONN, ?NOTCONN], Run([], [Recv, Recv, Send])),
    Show = [{show_econnreset, true}],
    ?assertEqual([?RESET, ?NOTCONN, ?RESET, ?NOTCONN], Run(Show, [Send, Send, Recv, Recv])).

%% What was delayed goes out before the end of the stream.
delayed_then_shutdown(Config) ->
    [
        begin
            {C, S} = pair(Config, [{delay_send, true}]),
            ok = gen_tcp:send(C, "last words"),
            ok = gen_tcp:shutdown(C, write),
            _ = gen_tcp:send(C, "too late"),
            ?assertEqual({ok, <<"last words">>}, gen_tcp:recv(S, 0, 5000)),
            ?assertEqual(?CLOSED, gen_tcp:recv(S, 0, 5000))
        end
     || _ <- lists:seq(1, 20)
    ].

%% Nothing goes out, yet each counts.
empty_sends_count(Config) ->
    {_Peer, S} = fed(Config, []),
    [ok = gen_tcp:send(S, Data) || Data <- ["", <<>>, [<<>>, []], "ab", ""]],
    ?assertEqual({ok, [{send_cnt, 5}, {send_oct, 2}, {send_max, 2}, {send_avg, 0}]},
                 inet:getstat(S, [send_cnt, send_oct, send_max, send_avg])).

%% It waits for the queue like any other.
empty_send_above_high(Config) ->
    Low = [{high_watermark, 9}, {low_watermark, 9} | ?SMALL],
    {_Peer, S} = fed(Config, [{send_timeout, 10} | Low]),
    ok = gen_tcp:send(S, binary:copy(<<0>>, 8 bsl 20)),
    ?assertEqual({error, timeout}, gen_tcp:send(S, "")).
