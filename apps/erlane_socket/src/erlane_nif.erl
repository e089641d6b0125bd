%% SPDX-License-Identifier: Apache-2.0
%% @doc The NIF's functions; c_src/erlane_nif.c says what each answers.
%%
%% Internal. A Ref is a socket's resource, a ticket names one wait of a process:
%% `{erlane_async, Ref, Ticket, ready | ok | closed}' ends it.
-module(erlane_nif).

-export([lane_open/1, lane_poll/2, lane_turn/1, lane_sleep/1, lane_woke/1, lane_close/1,
         lane_here/0, lane_stats/1, lane_list/1]).
-export([open/4, fdopen/2, bind/2, listen/2, connect/2, connected/2, accept/2, cancel/2]).
-export([send/3, send_each/4, sendfile_begin/2, sendfile_step/3, sendfile_end/1]).
-export([recv/3, peek/1, take/5, need/4, fail/3, unrecv/2, set_active/2, follow/1]).
-export([close/1, close_now/2, shutdown/2]).
-export([setsockopt/4, getsockopt/4, setopt/3, getopt/2, name/2, stat/1, info/1, watch/1]).
-export([give/2, handover/1, own/2, owner/1, relay/7, relay_info/1, relay_stop/2, faults/1]).

-on_load(load/0).

-nifs([lane_open/1, lane_poll/2, lane_turn/1, lane_sleep/1, lane_woke/1, lane_close/1, lane_here/0,
       lane_stats/1, lane_list/1, open/4, fdopen/2, bind/2, listen/2, connect/2,
       connected/2, accept/2, cancel/2, leave/1, join/1, send/3, send_each/4,
       sendfile_begin/2, sendfile_step/3, sendfile_end/1, recv/3, peek/1, take/5, need/4,
       fail/3, unrecv/2, active/2, close/1, close_now/2, shutdown/2, setsockopt/4,
       getsockopt/4, setopt/3, getopt/2, name/2, stat/1, info/1, watch/1, give/2,
       handover/1, own/2, owner/1, relay/7, relay_info/1, relay_stop/2, faults/1]).

-type ref() :: reference().
-type ticket() :: non_neg_integer().
-type posix() :: {error, atom()}.

-spec load() -> ok | {error, term()}.
load() ->
    File = case os:getenv("ERLANE_NIF") of
               false -> filename:join(priv_dir(), "erlane_nif");
               Other -> filename:rootname(Other, ".so")
           end,
    Release = list_to_integer(erlang:system_info(otp_release)),
    Buffer = case Release >= 29 of
                 true -> 9216; % inet's default since then
                 false -> 1460
             end,
    erlang:load_nif(File, {erlang:system_info(schedulers), Buffer, Release}).

%% Beside our own beam, also where no application path is known (an escript, a
%% plain -pa).
priv_dir() ->
    case code:priv_dir(erlane_socket) of
        {error, bad_name} ->
            filename:join(filename:dirname(filename:dirname(code:which(?MODULE))), "priv");
        Dir ->
            Dir
    end.

%% @doc Sets `active'. Where the NIF asks for it, the caller first takes in the
%% messages on their way to it, so that what the lane sends later comes later.
-spec set_active(ref(), true | false | once | integer()) -> ok | {error, einval}.
set_active(Ref, Active) ->
    case active(Ref, Active) of
        ok -> ok;
        follow -> follow(Ref);
        elsewhere -> erlane_lanes:check(); % is its scheduler still online?
        ready -> take_messages_in();
        {error, _} = Error -> Error
    end.

%% @doc Moves the caller's socket to the lane where the caller runs. Between the
%% two lanes all that the old one has sent is taken in: messages of two senders
%% are not ordered otherwise.
-spec follow(ref()) -> ok.
follow(Ref) ->
    case leave(Ref) of
        ok ->
            ok = take_messages_in(),
            _ = join(Ref),
            ok;
        gone ->
            ok
    end.

%% Asking for the queue's length fetches all signals that have arrived.
take_messages_in() ->
    {message_queue_len, _} = erlang:process_info(self(), message_queue_len),
    ok.

-spec lane_open(pos_integer()) -> {ok, reference()} | posix().
lane_open(_Index) -> erlang:nif_error(not_loaded).
-spec lane_poll(reference(), boolean()) -> ok | gone.
lane_poll(_Lane, _Bound) -> erlang:nif_error(not_loaded).
-spec lane_turn(reference()) -> non_neg_integer() | {non_neg_integer(), [ref()]} | gone.
lane_turn(_Lane) -> erlang:nif_error(not_loaded).
-spec lane_sleep(reference()) -> busy | infinity | pos_integer() | gone | posix().
lane_sleep(_Lane) -> erlang:nif_error(not_loaded).
-spec lane_woke(reference()) -> ok.
lane_woke(_Lane) -> erlang:nif_error(not_loaded).
-spec lane_close(reference()) -> ok | more.
lane_close(_Lane) -> erlang:nif_error(not_loaded).
-spec lane_here() -> non_neg_integer().
lane_here() -> erlang:nif_error(not_loaded).
-spec lane_stats(pos_integer()) -> [non_neg_integer()] | undefined.
lane_stats(_Index) -> erlang:nif_error(not_loaded).
-spec lane_list(pos_integer()) -> [ref()].
lane_list(_Index) -> erlang:nif_error(not_loaded).
-spec open(0 | 4 | 6, integer(), binary() | undefined, Lane :: non_neg_integer()) ->
          {ok, ref()} | posix().
open(_Family, _Protocol, _Netns, _Lane) -> erlang:nif_error(not_loaded).
-spec fdopen(integer(), Lane :: non_neg_integer()) -> {ok, ref()} | posix().
fdopen(_Fd, _Lane) -> erlang:nif_error(not_loaded).
-spec bind(ref(), tuple()) -> ok | posix().
bind(_Ref, _Addr) -> erlang:nif_error(not_loaded).
-spec listen(ref(), integer()) -> ok | posix().
listen(_Ref, _Backlog) -> erlang:nif_error(not_loaded).
-spec connect(ref(), tuple()) -> ok | {wait, ticket()} | posix().
connect(_Ref, _Addr) -> erlang:nif_error(not_loaded).
-spec connected(ref(), ticket()) -> ok | wait | posix().
connected(_Ref, _Ticket) -> erlang:nif_error(not_loaded).
-spec accept(ref(), ticket()) ->
          {true | false | once | integer(), {ok, ref()} | posix()} | {wait, ticket()} | posix().
accept(_Ref, _Ticket) -> erlang:nif_error(not_loaded).
-spec cancel(ref(), ticket()) -> ok | gone.
cancel(_Ref, _Ticket) -> erlang:nif_error(not_loaded).
-spec leave(ref()) -> ok | gone.
leave(_Ref) -> erlang:nif_error(not_loaded).
-spec join(ref()) -> ok | posix().
join(_Ref) -> erlang:nif_error(not_loaded).
-spec send(ref(), binary() | [binary()], false | more | once) ->
          ok | armed | follow | too_long | {wait, ticket(), integer()} | posix().
send(_Ref, _Data, _Then) -> erlang:nif_error(not_loaded).
-spec send_each([Socket | {Socket, binary() | [binary()]}], binary() | [binary()],
                Limit :: non_neg_integer(), Notify :: boolean()) ->
          {Rest :: list(), [{Socket, {queued, non_neg_integer()} | posix()
                                   | {full, non_neg_integer(), ticket()}}]}
              when Socket :: erlane_tcp:socket().
send_each(_Sockets, _Data, _Limit, _Notify) -> erlang:nif_error(not_loaded).
-spec sendfile_begin(ref(), integer()) -> ok | posix().
sendfile_begin(_Ref, _Fd) -> erlang:nif_error(not_loaded).
-spec sendfile_step(ref(), non_neg_integer(), non_neg_integer()) ->
          {ok, non_neg_integer()} | more | {wait, ticket()} | posix().
sendfile_step(_Ref, _Offset, _Count) -> erlang:nif_error(not_loaded).
-spec sendfile_end(ref()) -> ok.
sendfile_end(_Ref) -> erlang:nif_error(not_loaded).
-spec recv(ref(), non_neg_integer(), ticket()) ->
          {ok | follow, binary() | list()} | {wait, ticket()} | posix() |
          {decode, ticket(), binary(), non_neg_integer(), integer(), boolean()}.
recv(_Ref, _Length, _Ticket) -> erlang:nif_error(not_loaded).
-spec peek(ref()) -> {binary(), non_neg_integer(), integer(), boolean()} | gone.
peek(_Ref) -> erlang:nif_error(not_loaded).
-spec take(ref(), non_neg_integer(), pos_integer(), boolean(), term()) ->
          {ok, non_neg_integer()} | stop | gone.
take(_Ref, _Version, _Bytes, _HttpHeader, _Message) -> erlang:nif_error(not_loaded).
-spec need(ref(), non_neg_integer(), non_neg_integer(), boolean()) -> ok.
need(_Ref, _Version, _Size, _Active) -> erlang:nif_error(not_loaded).
-spec fail(ref(), non_neg_integer(), boolean()) -> ok.
fail(_Ref, _Version, _Active) -> erlang:nif_error(not_loaded).
-spec unrecv(ref(), iodata()) -> ok | posix().
unrecv(_Ref, _Data) -> erlang:nif_error(not_loaded).
-spec active(ref(), true | false | once | integer()) ->
    ok | ready | follow | elsewhere | {error, einval}.
active(_Ref, _Active) -> erlang:nif_error(not_loaded).
-spec close(ref()) -> ok | {wait, ticket(), non_neg_integer()}.
close(_Ref) -> erlang:nif_error(not_loaded).
-spec close_now(ref(), Reset :: boolean() | keep | reset) -> ok.
close_now(_Ref, _How) -> erlang:nif_error(not_loaded).
-spec shutdown(ref(), 0 | 1 | 2) -> ok | posix().
shutdown(_Ref, _How) -> erlang:nif_error(not_loaded).
-spec setsockopt(ref(), integer(), integer(), binary()) -> ok | posix().
setsockopt(_Ref, _Level, _Name, _Value) -> erlang:nif_error(not_loaded).
-spec getsockopt(ref(), integer(), integer(), non_neg_integer()) -> {ok, binary()} | posix().
getsockopt(_Ref, _Level, _Name, _Size) -> erlang:nif_error(not_loaded).
-spec setopt(ref(), integer(), integer()) -> ok | posix().
setopt(_Ref, _Option, _Value) -> erlang:nif_error(not_loaded).
-spec getopt(ref(), integer()) -> {ok, integer()} | posix().
getopt(_Ref, _Option) -> erlang:nif_error(not_loaded).
-spec name(ref(), 0 | 1) -> {ok, tuple()} | posix().
name(_Ref, _Peer) -> erlang:nif_error(not_loaded).
-spec stat(ref()) -> [non_neg_integer()] | {error, einval}.
stat(_Ref) -> erlang:nif_error(not_loaded).
-spec info(ref()) ->
          {pid() | undefined, integer(), boolean(), boolean(), non_neg_integer(), integer()}.
info(_Ref) -> erlang:nif_error(not_loaded).
-spec watch(ref()) -> ok | gone.
watch(_Ref) -> erlang:nif_error(not_loaded).
-spec give(ref(), pid()) -> ok | busy | posix().
give(_Ref, _Pid) -> erlang:nif_error(not_loaded).
-spec handover(ref()) -> {ok, true | false | once | integer()} | posix().
handover(_Ref) -> erlang:nif_error(not_loaded).
-spec own(ref(), pid()) -> ok | posix().
own(_Ref, _Pid) -> erlang:nif_error(not_loaded).
-spec owner(ref()) -> pid() | undefined.
owner(_Ref) -> erlang:nif_error(not_loaded).
-spec relay(ref(), ref(), binary(), binary(), integer(), integer(), boolean()) ->
          {ok, reference()} | eagain | posix().
relay(_A, _B, _ToB, _ToA, _IdleMs, _HalfMs, _HalfClose) -> erlang:nif_error(not_loaded).
-spec relay_info(reference()) ->
          {non_neg_integer(), non_neg_integer(), integer()} | undefined.
relay_info(_Relay) -> erlang:nif_error(not_loaded).
-spec relay_stop(reference(), 1 | 2) -> ok.
relay_stop(_Relay, _How) -> erlang:nif_error(not_loaded).
-spec faults(non_neg_integer()) -> ok | posix().
faults(_Every) -> erlang:nif_error(not_loaded).
