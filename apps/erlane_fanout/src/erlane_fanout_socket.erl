%% SPDX-License-Identifier: Apache-2.0
%% @doc Sockets as subscribers: what a lane calls.
%%
%% A lane hands what a turn brings to all sockets of a chunk in one native call. What the kernel
%% does not take waits in the socket's queue; a socket whose queue would pass its limit gets
%% nothing, and its policy decides what it gets when the kernel has taken all of it. The lane is
%% told when that is by a message, so a peer that never reads costs nothing.
%%
%% The socket keeps its owner, which reads from it and may write to it: each write of a whole
%% message by gen_tcp:send/2 stays whole. It ends the subscription before it writes what must be
%% the last.
-module(erlane_fanout_socket).

-export([check/3, frames/2, gap/4, write/3, settled/2, notice/2, close/1]).

-export_type([frames/0, gap_frame/0]).

-type frames() :: iodata().
-type gap_frame() :: iodata() | fun((From :: pos_integer(), To :: pos_integer()) -> term()).
%% A message of its own, or what makes one; framed as any other.

-type sub() :: erlane_fanout_sub:sub().
-type socket() :: erlane_tcp:socket().

%% Above any queue.
-define(NO_LIMIT, (1 bsl 62)).
%% Pieces up to here are joined, once for all sockets; larger ones are shared.
-define(JOIN_BYTES, 65536).

%% @doc Called at the door: the socket, its framing, and the option `gap_frame' or `undefined'.
%% Only sockets of erlane_socket can be written to by others than their process: `{mode, Why}'
%% with `{badarg, _}' for what is none or no framing, `closed' and `enotconn' for one that is not
%% connected.
-spec check(term(), term(), term()) -> ok | {error, {atom(), term()}}.
check(Socket, Framing, GapFrame) ->
    case {erlane_fanout_frame:check(Framing), gap_frame(GapFrame)} of
        {false, _} -> {error, {mode, {badarg, Framing}}};
        {_, false} -> {error, {gap_frame, {badarg, GapFrame}}};
        {true, true} -> connected(Socket)
    end.

gap_frame(undefined) -> true;
gap_frame(Fun) when is_function(Fun) -> is_function(Fun, 2);
gap_frame(Data) ->
    try iolist_size(Data) of
        _ -> true
    catch
        error:badarg -> false
    end.

connected(Socket) ->
    case erlane_socket:send_each([Socket], <<>>, #{limit => ?NO_LIMIT}) of
        [{_, {error, einval}}] -> {error, {mode, {badarg, Socket}}};
        [{_, {error, Why}}] -> {error, {mode, Why}};
        _ -> ok
    end.

%% @doc What these messages are on the wire; called once for each framing. A message that cannot
%% be framed is left out and logged: it is the publisher's error, not the subscribers'.
-spec frames(erlane_fanout_frame:framing(), [term()]) -> frames().
frames(Framing, Messages) ->
    Frames = [frame(Framing, Message) || Message <- Messages],
    case iolist_size(Frames) of
        Size when Size =< ?JOIN_BYTES -> iolist_to_binary(Frames);
        _ -> erlang:iolist_to_iovec(Frames)
    end.

%% The function is not ours.
frame(Framing, Message) ->
    try erlane_fanout_frame:frame(Framing, Message) of
        Frame -> _ = iolist_size(Frame), Frame
    catch
        Class:Reason:Stack ->
            logger:error("erlane_fanout: a message cannot be framed as ~tp: ~tP",
                         [Framing, erl_error(Class, Reason, Stack), 12]),
            []
    end.

erl_error(Class, Reason, [{M, F, A, _} | _]) when is_list(A) -> {Class, Reason, {M, F, length(A)}};
erl_error(Class, Reason, [{M, F, A, _} | _]) -> {Class, Reason, {M, F, A}};
erl_error(Class, Reason, []) -> {Class, Reason}.

%% @doc The notice of a gap, `none' without one: then the socket is disconnected.
-spec gap(erlane_fanout_frame:framing(), gap_frame() | undefined, pos_integer(),
          pos_integer()) -> frames() | none.
gap(_, undefined, _, _) ->
    none;
gap(Framing, GapFrame, From, To) ->
    try
        Message = if is_function(GapFrame) -> GapFrame(From, To); true -> GapFrame end,
        iolist_to_binary(erlane_fanout_frame:frame(Framing, Message))
    catch
        _:_ -> none
    end.

%% @doc Writes to all of them in one call, and never waits. Answers those that got nothing: `over',
%% more than the limit would wait in its queue, or `closed'. A socket with an empty queue takes
%% whatever comes.
-spec write([{sub(), socket()}], frames(), pos_integer() | infinity) ->
          [{sub(), over | closed}].
write(Members, Frames, Limit) ->
    Opts = #{limit => queue_limit(Limit, Frames)},
    Odd = erlane_socket:send_each([Socket || {_, Socket} <- Members], Frames, Opts),
    refused(Members, lists:reverse(Odd)).

queue_limit(infinity, _) -> ?NO_LIMIT;
queue_limit(Limit, Frames) -> max(0, Limit - iolist_size(Frames)).

%% Both in one order.
refused(_, []) -> [];
refused([{_, Socket} | Members], [{Socket, {queued, _}} | Odd]) -> refused(Members, Odd);
refused([{Sub, Socket} | Members], [{Socket, {full, _, _}} | Odd]) ->
    [{Sub, over} | refused(Members, Odd)];
refused([{Sub, Socket} | Members], [{Socket, {error, _}} | Odd]) ->
    [{Sub, closed} | refused(Members, Odd)];
refused([_ | Members], Odd) -> refused(Members, Odd).

%% @doc Has the kernel taken all? If not, the calling lane gets one message
%% `{erlane_async, Ref, Ticket, _}' when it is time to ask again: {@link notice/2} tells for whom.
-spec settled(sub(), socket()) -> true | false | closed.
settled(Sub, {_, _, Ref} = Socket) ->
    case erlane_socket:send_each([Socket], <<>>, #{notify => true}) of
        [] -> true;
        [{_, {full, _, Ticket}}] -> put({?MODULE, Ref, Ticket}, Sub), false;
        [{_, {error, _}}] -> closed
    end.

%% @doc The subscription that this message to the lane is about; it may be gone by now.
-spec notice(reference(), non_neg_integer()) -> sub() | none.
notice(Ref, Ticket) ->
    case erase({?MODULE, Ref, Ticket}) of
        undefined -> none;
        Sub -> Sub
    end.

%% @doc Resets the connection: its owner sees it end.
-spec close(socket()) -> ok.
close(Socket) ->
    erlane_socket:abort(Socket).
