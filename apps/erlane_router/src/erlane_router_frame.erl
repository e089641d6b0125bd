%% SPDX-License-Identifier: Apache-2.0
%% @doc What a lane sends its partner, and what the partner makes of it.
%%
%% A frame is `{erlane_router_frame, Version, Count, Bytes, Entries}'. Count and bytes are what
%% the lane was charged for; entries are in the order of sending:
%%
%% ```
%% {Dest, Message, Bytes}                         to one
%% {run, Dest, [Message], 0}                      one after the other to one
%% {many, [Dest], Message, Bytes, Count}          to many
%% {large, Dest | [Dest], Packed, Bytes, Count}   with a frame of its own
%% '''
%% Packed is a binary, the message encoded by the sender, so that lane and VM copy a reference;
%% or `{raw, Message}', where most of it is in binaries, of which this is true anyway.
%%
%% A Dest is a process, an alias, or a name on the partner's node. What comes from another node
%% may be anything: a malformed entry costs only itself.
-module(erlane_router_frame).

-export([frame/3, pack/1, deliver/1, plain/2]).

-export_type([dest/0, entry/0, frame/0]).

-include("erlane_router.hrl").

-type dest() :: pid() | reference() | atom().
-type entry() :: {dest(), term(), non_neg_integer()}
               | {run, dest(), [term()], 0}
               | {many, [dest()], term(), pos_integer(), pos_integer()}
               | {large, dest() | [dest()], packed(), pos_integer(), pos_integer()}.
-type packed() :: binary() | {raw, term()}.
-type frame() :: {?MODULE, pos_integer(), non_neg_integer(), non_neg_integer(), [entry()]}.

%% @doc A frame of entries that are in order.
-spec frame(non_neg_integer(), non_neg_integer(), [entry()]) -> frame().
frame(Count, Bytes, Entries) ->
    {?MODULE, ?VERSION, Count, Bytes, Entries}.

%% @doc A large message, packed.
-spec pack(term()) -> packed().
pack(Message) ->
    %% More than one piece: binaries that a message refers to and does not copy.
    case term_to_iovec(Message, [{minor_version, 2}]) of
        [Binary] -> Binary;
        _ -> {raw, Message}
    end.

unpack({raw, Message}) -> Message;
unpack(Binary) when is_binary(Binary) -> binary_to_term(Binary).

%% @doc Sends what is in the entries, and says how many were malformed.
-spec deliver(term()) -> non_neg_integer().
deliver(Entries) -> deliver(Entries, 0).

deliver([{Dest, Message, _} | Rest], Bad) when is_pid(Dest), node(Dest) =:= node() ->
    _ = is_of_now(Dest) andalso (Dest ! Message),
    deliver(Rest, Bad);
deliver([{run, Dest, Messages, _} | Rest], Bad) when is_pid(Dest), node(Dest) =:= node() ->
    case is_of_now(Dest) of
        true -> deliver(Rest, Bad + run(Messages, Dest));
        false -> deliver(Rest, Bad)
    end;
deliver([Entry | Rest], Bad) ->
    deliver(Rest, Bad + entry(Entry));
deliver([], Bad) ->
    Bad;
deliver(_, Bad) ->
    Bad + 1.

%% Of a process of an earlier incarnation node/1 says this node as well. Nobody gets what is sent
%% to it, but the VM writes each such message, whole, to its log. Processes of now are one word;
%% those of then are something on the heap. References are always on the heap: there the creation
%% in the external form tells, which takes longer.
is_of_now(Pid) when is_pid(Pid) ->
    erts_debug:flat_size(Pid) =:= 0;
is_of_now(Ref) ->
    <<131, 90, Length:16, _/binary>> = Binary = term_to_binary(Ref),
    Before = byte_size(Binary) - 4 * (Length + 1),
    <<_:Before/binary, Creation:32, _/binary>> = Binary,
    Creation =:= erlang:system_info(creation).

run([Message | Messages], Dest) ->
    Dest ! Message,
    run(Messages, Dest);
run([], _) -> 0;
run(_, _) -> 1.

run([Message | Messages], Dest, Bad) -> run(Messages, Dest, Bad + to(Dest, Message));
run([], _, Bad) -> Bad;
run(_, _, Bad) -> Bad + 1.

entry({Name, Message, _}) -> to(Name, Message);
entry({run, Dest, Messages, _}) -> run(Messages, Dest, 0);
entry({many, Dests, Message, _, _}) -> each(Dests, Message, 0);
entry({large, Dests, Packed, _, _}) ->
    try unpack(Packed) of
        Message when is_list(Dests) -> each(Dests, Message, 0);
        Message -> to(Dests, Message)
    catch
        error:_ -> 1
    end;
entry(_) -> 1.

each([Dest | Rest], Message, Bad) when is_pid(Dest), node(Dest) =:= node() ->
    _ = is_of_now(Dest) andalso (Dest ! Message),
    each(Rest, Message, Bad);
each([Dest | Rest], Message, Bad) -> each(Rest, Message, Bad + to(Dest, Message));
each([], _, Bad) -> Bad;
each(_, _, Bad) -> Bad + 1.

%% With its node a name may be nobody's. A port is not a destination: it would end its sender.
to(Dest, Message) when is_pid(Dest), node(Dest) =:= node(); is_reference(Dest),
                       node(Dest) =:= node() ->
    _ = is_of_now(Dest) andalso (Dest ! Message),
    0;
to(Name, Message) when is_atom(Name) ->
    {Name, node()} ! Message,
    0;
to(_, _) ->
    1.

%% @doc Sends the message of an entry as everybody does, for a node without a router.
-spec plain(node(), entry()) -> ok.
plain(Node, {many, Dests, Message, _, _}) ->
    lists:foreach(fun(Dest) -> plain_to(Node, Dest, Message) end, Dests);
plain(Node, {run, Dest, Messages, _}) ->
    lists:foreach(fun(Message) -> plain_to(Node, Dest, Message) end, Messages);
plain(Node, {large, Dests, Packed, Bytes, Count}) when is_list(Dests) ->
    plain(Node, {many, Dests, unpack(Packed), Bytes, Count});
plain(Node, {large, Dest, Packed, _, _}) ->
    plain_to(Node, Dest, unpack(Packed));
plain(Node, {Dest, Message, _}) ->
    plain_to(Node, Dest, Message).

plain_to(Node, Name, Message) when is_atom(Name) -> send({Name, Node}, Message);
plain_to(_, Dest, Message) -> send(Dest, Message).

send(Dest, Message) ->
    _ = Dest ! Message,
    ok.
