%% SPDX-License-Identifier: Apache-2.0
%% @doc What a node says of its distribution, and how it is told something else.
%%
%% All is done by functions of OTP that are called on the node, be it ours or another: so another
%% node needs none of our code, and may run another release. Whatever is called may wait for a
%% process that does not answer, so each call has a deadline. If the node itself cannot be
%% reached any more, `{gone, Reason}' is thrown.
-module(erlane_dist_node).

-export([call/4, alive/1, run/1, supported/1, listener/1, peers/1, values/2, set/2, same/3]).
-export([new/2, env/1, env_names/0, set_env/3, side/3]).

-export_type([env/0]).

-type env() :: #{atom() := undefined | {ok, term()}}.
-type peer() :: {node(), port() | pid()}.

-define(CALL_MS, 5000).
-define(CONNECT, inet_dist_connect_options).
-define(LISTEN, inet_dist_listen_options).

%% @doc Calls a function of OTP on the node.
-spec call(node(), module(), atom(), [term()]) -> {ok, term()} | {error, term()}.
call(At, M, F, A) ->
    [Answer] = calls(At, [{M, F, A}]),
    Answer.

%% Without an answer there is nothing to go on with.
must(At, M, F, A) ->
    case call(At, M, F, A) of
        {ok, Answer} -> Answer;
        {error, Reason} -> throw({gone, Reason})
    end.

%% All at the same time, and waits for all together.
calls(At, Calls) ->
    Deadline = now_ms() + ?CALL_MS,
    Requests = [erpc:send_request(At, M, F, A) || {M, F, A} <- Calls],
    [answer(At, Request, Deadline) || Request <- Requests].

answer(At, Request, Deadline) ->
    try
        {ok, erpc:receive_response(Request, max(0, Deadline - now_ms()))}
    catch
        error:{erpc, timeout} -> {error, timeout};
        error:{erpc, Reason} when At =/= node() -> throw({gone, Reason});
        error:{exception, Reason, _} -> {error, Reason};
        _:Reason -> {error, Reason}
    end.

now_ms() -> erlang:monotonic_time(millisecond).

%% @doc Whether it is a node at all.
-spec alive(node()) -> boolean().
alive(At) -> call(At, erlang, is_alive, []) =:= {ok, true}.

%% @doc Which run of the node this is.
-spec run(node()) -> term().
run(At) ->
    {must(At, os, getpid, []), must(At, erlang, system_info, [creation])}.

%% @doc Whether every carrier that it listens with is TCP. With another one among them
%% net_kernel would set the options of some listeners, and then give up.
-spec supported(node()) -> boolean().
supported(At) ->
    case call(At, init, get_argument, [proto_dist]) of
        {ok, {ok, Lists}} -> lists:append(Lists) -- ["inet_tcp", "inet6_tcp"] =:= [];
        {ok, error} -> true;
        {error, _} -> false
    end.

%% @doc The listening socket: the port of net_kernel that is no connection.
-spec listener(node()) -> port() | none.
listener(At) ->
    case must(At, erlang, whereis, [net_kernel]) of
        Pid when is_pid(Pid) ->
            {links, Links} = must(At, erlang, process_info, [Pid, links]),
            Ports = [Port || Port <- Links, is_port(Port)],
            Owners = calls(At, [{erlang, port_info, [Port, connected]} || Port <- Ports]),
            case [Port || {Port, {ok, {connected, Owner}}} <- lists:zip(Ports, Owners),
                          Owner =:= Pid] of
                [Listener | _] -> Listener;
                [] -> none
            end;
        undefined ->
            none
    end.

%% @doc The connections, hidden ones too, by node; ours to that node is left out.
-spec peers(node()) -> [peer()].
peers(At) ->
    Peers = must(At, erlang, system_info, [dist_ctrl]),
    lists:sort([Peer || {Node, _} = Peer <- Peers, At =:= node() orelse Node =/= node()]).

%% @doc Whether a node still has this connection.
-spec same(node(), node(), port() | pid()) -> boolean().
same(At, Node, Connection) ->
    lists:member({Node, Connection}, peers(At)).

%% @doc The settings of connections. One that is a process is another carrier: TLS has a socket
%% too, but nobody has measured what our settings do to it.
-spec values(node(), [peer()]) ->
          [{node(), port() | pid(), {ok, erlane_dist_opts:values()} | {error, term()}}].
values(At, Peers) ->
    Answers = calls(At, [case Peer of
                             {Node, Port} when is_port(Port) ->
                                 {net_kernel, getopts, [Node, erlane_dist_opts:keys()]};
                             _ ->
                                 {erlang, node, []}
                         end || Peer <- Peers]),
    [{Node, Connection, values_of(Connection, Answer)}
     || {{Node, Connection}, Answer} <- lists:zip(Peers, Answers)].

values_of(Connection, _) when not is_port(Connection) -> {error, enotsup};
values_of(_, {ok, {ok, Opts}}) -> {ok, maps:from_list(Opts)};
values_of(_, {ok, {error, Reason}}) -> {error, Reason};
values_of(_, {ok, ignored}) -> {error, noconnection};
values_of(_, {error, Reason}) -> {error, Reason}.

%% @doc Sets options, of connections or of `new', all at the same time.
-spec set(node(), [{new | node(), erlane_dist_opts:values()}]) -> [ok | {error, term()}].
set(At, Settings) ->
    [case Answer of
         {ok, ok} -> ok;
         {ok, {error, Reason}} -> {error, Reason};
         {ok, ignored} -> {error, noconnection};
         {error, Reason} -> {error, Reason}
     end || Answer <- calls(At, [{net_kernel, setopts, [Where, in_order(Values)]}
                                 || {Where, Values} <- Settings])].

in_order(Values) ->
    [{Key, maps:get(Key, Values)} || Key <- erlane_dist_opts:keys(), is_map_key(Key, Values)].

%% @doc What connections to come would have: those that the node makes, and those it accepts.
-spec new(node(), env()) ->
          #{connect := erlane_dist_opts:values(), accept := erlane_dist_opts:values(),
            listener := port() | none}.
new(At, #{?CONNECT := Connect, ?LISTEN := Listen}) ->
    Listener = listener(At),
    Plain = plain(At),
    Accept = case of_port(At, Listener) of
                 {ok, Values} -> Values;
                 {error, _} -> maps:merge(Plain, ours(Listen))
             end,
    Defaults = ours(must(At, application, get_env, [kernel, inet_default_connect_options])),
    #{connect => maps:merge(maps:merge(Plain, Defaults), ours(Connect)), accept => Accept,
      listener => Listener}.

of_port(_, none) -> {error, none};
of_port(At, Port) ->
    case call(At, inet, getopts, [Port, erlane_dist_opts:keys()]) of
        {ok, {ok, Opts}} -> {ok, maps:from_list(Opts)};
        _ -> {error, closed}
    end.

%% What a socket has that nobody told anything: each release has its own defaults, so a socket
%% is made, and closed in the same call.
plain(At) ->
    Text = "{ok, S} = gen_tcp:listen(0, [{inet_backend, inet}, {ip, {127, 0, 0, 1}}]),"
           "R = inet:getopts(S, Keys), gen_tcp:close(S), R.",
    {ok, Tokens, _} = erl_scan:string(Text),
    {ok, Exprs} = erl_parse:parse_exprs(Tokens),
    case call(At, erl_eval, exprs, [Exprs, [{'Keys', erlane_dist_opts:keys()}]]) of
        {ok, {value, {ok, Opts}, _}} -> maps:from_list(Opts);
        _ -> #{}
    end.

%% The first of a key counts; there may be anything in an environment.
ours({ok, [{Key, Value} | Rest]}) ->
    Others = ours({ok, Rest}),
    case lists:member(Key, erlane_dist_opts:keys()) of
        true -> Others#{Key => Value};
        false -> Others
    end;
ours({ok, [_ | Rest]}) -> ours({ok, Rest});
ours(_) -> #{}.

%% @doc Which side of a connection the node is: one that it accepted has the listener's port.
-spec side(node(), port() | none, port()) -> connect | accept.
side(_, none, _) ->
    connect;
side(At, Listener, Port) ->
    case calls(At, [{inet, port, [Listener]}, {inet, port, [Port]}]) of
        [{ok, {ok, N}}, {ok, {ok, N}}] -> accept;
        _ -> connect
    end.

%% @doc The variables of `kernel' that `net_kernel:setopts(new, _)' writes to.
-spec env_names() -> [atom()].
env_names() -> [?CONNECT, ?LISTEN].

%% @doc What they are now.
-spec env(node()) -> env().
env(At) ->
    maps:from_list([{Name, must(At, application, get_env, [kernel, Name])}
                    || Name <- env_names()]).

%% @doc Sets one of them, or makes it unset.
-spec set_env(node(), atom(), undefined | {ok, term()}) -> ok.
set_env(At, Name, {ok, Value}) ->
    must(At, application, set_env, [kernel, Name, Value]);
set_env(At, Name, undefined) ->
    must(At, application, unset_env, [kernel, Name]).
