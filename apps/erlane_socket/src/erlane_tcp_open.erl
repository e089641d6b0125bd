%% SPDX-License-Identifier: Apache-2.0
%% @doc Making sockets: listen, connect and fdopen of erlane_tcp and erlane_tcp6.
%%
%% Options are read at the door, the descriptor is made, options go on, it is
%% bound, and then it listens or connects; `active' comes last.
-module(erlane_tcp_open).

-export([listen/3, connect/3, connect/4, fdopen/2]).

-type error() :: {error, atom()}.

-define(SOCK(Ref), {'$inet', erlane_tcp, Ref}).

%% @doc Listens; Family is that of a socket whose options name none.
-spec listen(inet:port_number(), [term()], inet | inet6) -> {ok, erlane_tcp:socket()} | error().
listen(Port, Opts, Family) ->
    Parsed = door(erlane_opts:listen([{port, Port} | Opts], Family)),
    #{addr := Addr0, family := Fam, backlog := Backlog} = Parsed,
    Addr = case Addr0 of
               undefined when Fam =/= local -> any;
               _ -> Addr0
           end,
    open(Parsed#{addr := Addr},
         fun(Ref) ->
                 case erlane_nif:listen(Ref, Backlog) of
                     ok -> erlane_opts:apply_opened(Ref, maps:get(opts, Parsed), active);
                     Error -> Error
                 end
         end).

%% @doc As gen_tcp:connect/3 with a socket address.
-spec connect(map(), [term()], timeout()) -> {ok, erlane_tcp:socket()} | error().
connect(#{family := Family} = SockAddr, Opts, Timeout) ->
    connect_to(SockAddr, Family, Opts, Timeout).

%% @doc As gen_tcp:connect/4, to one address, which tells the family.
-spec connect(term(), term(), [term()], timeout()) -> {ok, erlane_tcp:socket()} | error().
connect({local, _} = Address, 0, Opts, Timeout) ->
    connect_to(Address, local, Opts, Timeout);
connect(Address, Port, Opts, Timeout)
  when is_integer(Port), Port >= 0, Port =< 65535, tuple_size(Address) =:= 4 ->
    connect_to({Address, Port}, inet, Opts, Timeout);
connect(Address, Port, Opts, Timeout)
  when is_integer(Port), Port >= 0, Port =< 65535, tuple_size(Address) =:= 8 ->
    connect_to({Address, Port}, inet6, Opts, Timeout);
connect(Address, Port, Opts, Timeout) ->
    erlang:error(function_clause, [Address, Port, Opts, Timeout]).

connect_to(To, Family, Opts, Timeout)
  when Timeout =:= infinity; is_integer(Timeout), Timeout >= 0 ->
    Deadline = erlane_tcp:deadline(Timeout),
    Parsed = door(erlane_opts:connect(Opts, Family)),
    #{addr := Addr0, port := Port, opts := SockOpts} = Parsed,
    Addr = case Addr0 of
               undefined when Port =/= 0 -> any;
               _ -> Addr0
           end,
    open(Parsed#{addr := Addr},
         fun(Ref) ->
                 case connected(Ref, erlane_nif:connect(Ref, address(To, Family, 0)), Deadline) of
                     ok -> erlane_opts:apply_opened(Ref, SockOpts, active);
                     Error -> Error
                 end
         end).

connected(Ref, {wait, Ticket}, Deadline) ->
    case erlane_tcp:await(Ref, Ticket, Deadline) of
        ready ->
            case erlane_nif:connected(Ref, Ticket) of
                wait -> connected(Ref, {wait, Ticket}, Deadline);
                Answer -> Answer
            end;
        closed -> {error, closed};
        timeout -> {error, timeout}
    end;
connected(_Ref, Answer, _Deadline) ->
    Answer.

%% @doc A socket around an open descriptor, whose family the kernel tells.
-spec fdopen(non_neg_integer(), [term()]) -> {ok, erlane_tcp:socket()} | error().
fdopen(Fd, Opts) when is_integer(Fd), Fd >= 0 ->
    case set_fdopened(with_lanes(fun() -> erlane_nif:fdopen(Fd, 0) end), Opts) of
        {ok, Ref} -> {ok, ?SOCK(Ref)};
        Error -> Error
    end.

set_fdopened({ok, Ref}, Opts) ->
    case erlane_opts:set(Ref, Opts) of
        ok ->
            {ok, Ref};
        Error ->
            ok = erlane_nif:close_now(Ref, false),
            Error
    end;
set_fdopened(Error, _Opts) ->
    Error.

%% Makes the socket, applies its options, binds it, and lets Then finish.
open(#{fd := Fd} = Parsed, Then) ->
    Opened = with_lanes(fun() -> open_fd(Fd, Parsed) end),
    case Opened of
        {ok, Ref} ->
            try prepare(Ref, Parsed, Then) of
                ok -> {ok, ?SOCK(Ref)};
                {error, _} = Error ->
                    ok = erlane_nif:close_now(Ref, false),
                    Error
            catch
                Class:Reason:Stack ->
                    ok = erlane_nif:close_now(Ref, false),
                    erlang:raise(Class, Reason, Stack)
            end;
        {error, _} = Error ->
            Error
    end.

open_fd(Fd, #{erlane := Own}) when Fd >= 0 ->
    erlane_nif:fdopen(Fd, lane(Own));
open_fd(_, #{family := Family, netns := Netns, protocol := Protocol, erlane := Own}) ->
    erlane_nif:open(case Family of inet -> 4; inet6 -> 6; local -> 0 end,
                    case Protocol of
                        undefined -> 0;
                        tcp -> 6;
                        mptcp -> 262;
                        N -> N
                    end,
                    Netns, lane(Own)).

lane(#{lane := any}) -> 0;
lane(#{lane := Index}) -> Index.

prepare(Ref, #{addr := Addr, port := Port, family := Family, fd := Fd, opts := Opts}, Then) ->
    Bound = case erlane_opts:apply_opened(Ref, Opts, sockopts) of
                ok when Addr =:= undefined; Fd >= 0 -> ok;
                ok -> erlane_nif:bind(Ref, address(Addr, Family, Port));
                Error -> Error
            end,
    case Bound of
        ok -> Then(Ref);
        _ -> Bound
    end.

%% To the NIF's form. Whoever calls has checked the values.
address({{_, _, _, _} = Ip, Port}, _, _) -> {inet, Ip, Port};
address({{_, _, _, _, _, _, _, _} = Ip, Port}, _, _) -> {inet6, Ip, Port, 0, 0};
address({local, Path}, _, _) when is_binary(Path) -> {local, Path};
address({local, Path}, _, _) ->
    case unicode:characters_to_binary(Path, file:native_name_encoding()) of
        Bin when is_binary(Bin) -> {local, Bin};
        _ -> exit(badarg)
    end;
address(#{family := Family, port := Port} = Map, _, _) ->
    case translate(maps:get(addr, Map, any), Family) of
        {_, _, _, _} = Ip -> {inet, Ip, Port};
        Ip -> {inet6, Ip, Port, maps:get(flowinfo, Map, 0), maps:get(scope_id, Map, 0)}
    end;
address(Ip, Family, Port) ->
    address({translate(Ip, Family), Port}, Family, Port).

translate(Ip, Family) -> inet:translate_ip(Ip, Family).

door({ok, Parsed}) -> Parsed;
door({error, {_Key, Why}}) when Why =:= unknown; Why =:= badarg -> exit(badarg);
door({error, {_Key, Posix}}) -> throw_error(Posix).

-spec throw_error(atom()) -> no_return().
throw_error(Posix) -> exit(Posix).

%% inetrc may make this module the node's tcp_module before anybody starts us.
with_lanes(Fun) ->
    ok = erlane_lanes:check(),
    case Fun() of
        {error, no_lane} ->
            case application:ensure_all_started(erlane_socket) of
                {ok, _} -> Fun();
                {error, _} -> {error, system_limit}
            end;
        Answer ->
            Answer
    end.
