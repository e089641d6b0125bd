%% SPDX-License-Identifier: Apache-2.0
%% @doc The tcp_module that puts gen_tcp's sockets on lanes.
%%
%% Used by gen_tcp, inet and file, not called directly:
%% `gen_tcp:listen(Port, [{inet_backend, inet}, {tcp_module, erlane_tcp} | Opts])'.
%% Sockets are `{'$inet', erlane_tcp, Ref}'. Every function answers what inet's
%% driver answers; where it differs, the README of this app says so.
-module(erlane_tcp).

-export([listen/2, connect/3, connect/4, accept/1, accept/2, fdopen/2]).
-export([send/2, send/3, recv/2, recv/3, unrecv/2, sendfile/4, shutdown/2, close/1]).
-export([controlling_process/2, monitor/1, cancel_monitor/1]).
-export([setopts/2, getopts/2, getstat/2, sockname/1, peername/1, socknames/1, port/1]).
-export([info/1, socket_to_list/1, which_packet_type/1]).
-export([family/0, mask/2, parse_address/1, getserv/1, getaddr/1, getaddr/2, getaddrs/1,
         getaddrs/2, translate_ip/1]).
-export([await/3, deadline/1]). % erlane_tcp_open

-export_type([socket/0]).

-include_lib("kernel/include/file.hrl").
-include("erlane_nif.hrl").

-type socket() :: {'$inet', ?MODULE, reference()}.
-type error() :: {error, atom()}.

-define(SOCK(Ref), {'$inet', ?MODULE, Ref}).
-define(LINGER_MS, 180000).     % without linger, queued output may take that long
-define(STUCK_MS, 5000).        % or this long without any progress
-define(EMFILE_PAUSE_MS, 100).
-define(MAX_SENDFILE, 16#7fffffffffffffff).

%%% Opening

%% @doc As gen_tcp:listen/2. Bad options exit with badarg.
-spec listen(inet:port_number(), [term()]) -> {ok, socket()} | error().
listen(Port, Opts) ->
    erlane_tcp_open:listen(Port, Opts, inet).

%% @doc As gen_tcp:connect/3 with a socket address.
-spec connect(map(), [term()], timeout()) -> {ok, socket()} | error().
connect(SockAddr, Opts, Timeout) ->
    erlane_tcp_open:connect(SockAddr, Opts, Timeout).

%% @doc As gen_tcp:connect/4, to one address.
-spec connect(inet:ip_address() | {local, file:name_all()}, inet:port_number(), [term()],
              timeout()) -> {ok, socket()} | error().
connect(Address, Port, Opts, Timeout) ->
    erlane_tcp_open:connect(Address, Port, Opts, Timeout).

%% @doc A socket around an open descriptor, whose family the kernel tells.
-spec fdopen(non_neg_integer(), [term()]) -> {ok, socket()} | error().
fdopen(Fd, Opts) ->
    erlane_tcp_open:fdopen(Fd, Opts).

%%% Accepting

%% @doc As gen_tcp:accept/1.
-spec accept(socket()) -> {ok, socket()} | error().
accept(Socket) ->
    accept(Socket, infinity).

%% @doc As gen_tcp:accept/2. Out of descriptors, the error comes after a short
%% pause, so that a loop around accept does not spin.
-spec accept(socket(), timeout()) -> {ok, socket()} | error().
accept(?SOCK(Ref), Timeout) when Timeout =:= infinity; is_integer(Timeout), Timeout >= 0 ->
    accept(Ref, 0, deadline(Timeout)).

accept(Ref, Ticket, Deadline) ->
    case erlane_nif:accept(Ref, Ticket) of
        {false, {ok, New}} ->
            {ok, ?SOCK(New)};
        {wait, Ticket1} ->
            case await(Ref, Ticket1, Deadline) of
                ready -> accept(Ref, Ticket1, Deadline);
                closed -> {error, closed};
                timeout -> {error, timeout}
            end;
        {error, Posix} ->
            accept_error(Posix, Deadline);
        {Active, {ok, New}} ->
            _ = erlane_nif:set_active(New, Active),
            {ok, ?SOCK(New)};
        {_, Error} ->
            Error
    end.

accept_error(Posix, Deadline) when Posix =:= emfile; Posix =:= enfile ->
    erlane_log:limited({accept, Posix},
                       "erlane_tcp: accept: ~p, no descriptor left; pausing ~p ms",
                       [Posix, ?EMFILE_PAUSE_MS]),
    receive after min(?EMFILE_PAUSE_MS, left(Deadline)) -> ok end,
    {error, Posix};
accept_error(Posix, _Deadline) ->
    {error, Posix}.

%%% Bytes

%% @doc As gen_tcp:send/2.
-spec send(socket(), iodata()) -> ok | error().
send(?SOCK(Ref), Data) ->
    send_iodata(Ref, Data, false).

%% @doc As send/2. With `more' the last segment waits for what follows, at most 200 ms: more
%% bytes, or shutdown/2 or close/1, whose end then leaves in the same segment (MSG_MORE of
%% send(2)). With `{active, once}' setopts/2 follows when all is sent, mostly in the same call.
-spec send(socket(), iodata(), [more | {active, once}]) -> ok | error().
send(?SOCK(Ref), Data, []) -> send_iodata(Ref, Data, false);
send(?SOCK(Ref), Data, [more]) -> send_iodata(Ref, Data, more);
send(?SOCK(Ref), Data, [{active, once}]) -> send_iodata(Ref, Data, once);
send(_, _, _) -> {error, einval}.

send_iodata(Ref, Data, Then) when is_binary(Data) ->
    send_vec(Ref, Data, Then);
send_iodata(Ref, Data, Then) ->
    try erlang:iolist_to_iovec(Data) of
        [Bin] -> send_vec(Ref, Bin, Then);
        Vec -> send_vec(Ref, Vec, Then)
    catch
        error:badarg -> {error, einval}
    end.

send_vec(Ref, Data, Then) ->
    case erlane_nif:send(Ref, Data, Then) of
        ok -> then(Then, Ref);
        armed -> ok;
        follow -> ok = erlane_nif:follow(Ref), then(Then, Ref);
        {error, _} = Error -> Error;
        too_long -> send_vec(Ref, iolist_to_binary(Data), Then);
        {wait, Ticket, Ms} ->
            case full(Ref, Ticket, Ms) of
                ok -> then(Then, Ref);
                Error -> Error
            end
    end.

then(once, Ref) -> setopts(?SOCK(Ref), [{active, once}]);
then(_, _) -> ok.

full(Ref, Ticket, Ms) ->
    Deadline = deadline(case Ms of -1 -> infinity; _ -> Ms end),
    case await(Ref, Ticket, Deadline) of
        ok -> ok;
        Why when Why =:= closed; Why =:= econnreset -> {error, Why};
        timeout ->
            case erlane_nif:getopt(Ref, ?OPT_SEND_TIMEOUT_CLOSE) of
                {ok, 1} -> ok = erlane_nif:close_now(Ref, keep);
                _ -> ok
            end,
            {error, timeout}
    end.

%% @doc As gen_tcp:recv/2.
-spec recv(socket(), non_neg_integer()) -> {ok, term()} | error().
recv(Socket, Length) ->
    recv(Socket, Length, infinity).

%% @doc As gen_tcp:recv/3; bytes read before a timeout are kept.
-spec recv(socket(), non_neg_integer(), timeout()) -> {ok, term()} | error().
recv(?SOCK(Ref), Length, Timeout)
  when is_integer(Length), Length >= 0,
       (Timeout =:= infinity orelse is_integer(Timeout) andalso Timeout >= 0) ->
    case erlane_nif:recv(Ref, min(Length, 16#7fffffff), 0) of
        {ok, _} = Ok -> Ok;
        {error, _} = Error -> Error;
        Other -> received(Ref, Length, Other, deadline(Timeout))
    end.

received(Ref, Length, {wait, Ticket}, Deadline) ->
    case await(Ref, Ticket, Deadline) of
        ready -> received(Ref, Length, erlane_nif:recv(Ref, Length, Ticket), Deadline);
        closed -> {error, closed};
        timeout -> {error, timeout}
    end;
received(Ref, Length, {decode, Ticket, Bin, Version, Type, Header}, Deadline) ->
    case erlane_packet:decode(Ref, Type, Header, Bin) of
        {ok, Packet, Rest, Header1} ->
            case erlane_nif:take(Ref, Version, byte_size(Bin) - byte_size(Rest), Header1, none) of
                {ok, _} -> {ok, Packet};
                gone -> received(Ref, Length, erlane_nif:recv(Ref, Length, Ticket), Deadline)
            end;
        {more, Size} ->
            ok = erlane_nif:need(Ref, Version, Size, false),
            received(Ref, Length, erlane_nif:recv(Ref, Length, Ticket), Deadline);
        error ->
            ok = erlane_nif:fail(Ref, Version, false),
            {error, emsgsize}
    end;
received(Ref, _Length, {follow, Data}, _Deadline) ->
    ok = erlane_nif:follow(Ref),
    {ok, Data};
received(_Ref, _Length, Answer, _Deadline) ->
    Answer.

%% @doc As gen_tcp:unrecv/2: Data is read again before anything else.
-spec unrecv(socket(), iodata()) -> ok | error().
unrecv(?SOCK(Ref), Data) ->
    try erlane_nif:unrecv(Ref, Data)
    catch error:badarg -> {error, einval}
    end.

%% @private Waits for the answer to Ticket. Who is first decides: if the wait cannot be
%% cancelled its answer has been sent, and is taken out of the mailbox.
-spec await(reference(), non_neg_integer(), integer() | infinity) ->
          ready | ok | closed | econnreset | timeout.
await(Ref, Ticket, Deadline) ->
    ok = erlane_lanes:check(), % nobody else may be awake to see that the lane is not polled
    receive
        {erlane_async, Ref, Ticket, What} -> What
    after left(Deadline) ->
        case erlane_nif:cancel(Ref, Ticket) of
            ok ->
                receive {erlane_async, Ref, Ticket, closed} -> closed
                after 0 ->
                    receive {erlane_async, Ref, Ticket, _} -> timeout
                    after 0 -> timeout
                    end
                end;
            gone ->
                receive {erlane_async, Ref, Ticket, What} -> What
                after 0 -> closed
                end
        end
    end.

%% @private
-spec deadline(timeout()) -> integer() | infinity.
deadline(infinity) -> infinity;
deadline(Ms) -> erlang:monotonic_time(millisecond) + Ms.

left(infinity) -> infinity;
left(Deadline) -> max(0, min(16#ffffffff, Deadline - erlang:monotonic_time(millisecond))).

%% @doc For file:sendfile: Bytes 0 sends to the end of the file.
-spec sendfile(socket(), term(), non_neg_integer(), non_neg_integer()) ->
          {ok, non_neg_integer()} | error().
sendfile(?SOCK(Ref), File, Offset, Bytes)
  when is_integer(Offset), Offset >= 0, Offset =< ?MAX_SENDFILE,
       is_integer(Bytes), Bytes >= 0, Bytes =< ?MAX_SENDFILE ->
    case file_handle(File) of
        <<Fd:32/native>> ->
            case erlane_nif:sendfile_begin(Ref, Fd) of
                ok ->
                    Max = case Bytes of 0 -> ?MAX_SENDFILE; _ -> Bytes end,
                    try sendfile_loop(Ref, Offset, Max, 0)
                    after erlane_nif:sendfile_end(Ref)
                    end;
                Error ->
                    Error
            end;
        {error, _} = Error ->
            Error
    end;
sendfile(_Socket, _File, _Offset, _Bytes) ->
    {error, einval}.

%% Only a raw file has a descriptor; for others file:sendfile reads and sends.
file_handle(#file_descriptor{module = prim_file} = File) -> prim_file:get_handle(File);
file_handle(_) -> {error, enotsup}.

sendfile_loop(_Ref, _Offset, Max, Sent) when Sent >= Max ->
    {ok, Sent};
sendfile_loop(Ref, Offset, Max, Sent) ->
    case erlane_nif:sendfile_step(Ref, Offset + Sent, Max - Sent) of
        {ok, 0} -> {ok, Sent};
        {ok, N} -> sendfile_loop(Ref, Offset, Max, Sent + N);
        more -> sendfile_loop(Ref, Offset, Max, Sent);
        {wait, Ticket} ->
            case await(Ref, Ticket, infinity) of
                ok -> sendfile_loop(Ref, Offset, Max, Sent);
                _ -> {error, closed}
            end;
        Error -> Error
    end.

%% @doc As gen_tcp:shutdown/2; the write side is shut when queued output is out.
-spec shutdown(socket(), read | write | read_write) -> ok | error().
shutdown(?SOCK(Ref), read) -> erlane_nif:shutdown(Ref, 0);
shutdown(?SOCK(Ref), write) -> erlane_nif:shutdown(Ref, 1);
shutdown(?SOCK(Ref), read_write) -> erlane_nif:shutdown(Ref, 2).

%% @doc As gen_tcp:close/1: waits for queued output, for linger seconds if that
%% option is set, else as long as it moves.
-spec close(socket()) -> ok.
close(?SOCK(Ref) = Socket) ->
    case erlane_nif:close(Ref) of
        ok -> ok;
        {wait, Ticket, Queued} -> linger(Ref, Ticket, Queued)
    end,
    receive {tcp_closed, Socket} -> ok after 0 -> ok end.

linger(Ref, Ticket, Queued) ->
    {Ms, Patient} = case erlane_opts:get(Ref, [linger]) of
                        {ok, [{linger, {true, Seconds}}]} -> {Seconds * 1000, true};
                        _ -> {?LINGER_MS, false}
                    end,
    linger(Ref, Ticket, Queued, deadline(Ms), Patient).

linger(Ref, Ticket, Queued, Deadline, Patient) ->
    receive
        {erlane_async, Ref, Ticket, _} ->
            erlane_nif:close_now(Ref, false)
    after min(?STUCK_MS, left(Deadline)) ->
        case erlane_nif:getopt(Ref, ?OPT_SEND_PEND) of
            {ok, Left} when Left > 0, Left =/= Queued orelse Patient ->
                case left(Deadline) of
                    0 -> give_up(Ref, Ticket);
                    _ -> linger(Ref, Ticket, Left, Deadline, Patient)
                end;
            _ ->
                give_up(Ref, Ticket)
        end
    end.

give_up(Ref, Ticket) ->
    _ = erlane_nif:cancel(Ref, Ticket),
    ok = erlane_nif:close_now(Ref, false),
    receive {erlane_async, Ref, Ticket, _} -> ok after 0 -> ok end.

%%% Owner

%% @doc As gen_tcp:controlling_process/2: delivery stops, the messages that have
%% come are moved in their order, delivery goes on to the new owner.
-spec controlling_process(socket(), pid()) ->
          ok | {error, closed | not_owner | badarg | atom()}.
controlling_process(_Socket, NewOwner) when node(NewOwner) =/= node() ->
    {error, badarg};
controlling_process(?SOCK(Ref) = Socket, NewOwner) ->
    case erlane_nif:give(Ref, NewOwner) of
        busy ->
            case erlane_nif:handover(Ref) of
                {ok, Active} ->
                    move_messages(Socket, NewOwner),
                    hand_over(Ref, NewOwner, Active);
                Error ->
                    Error
            end;
        Answer ->
            Answer
    end.

hand_over(Ref, NewOwner, Active) ->
    case erlane_nif:own(Ref, NewOwner) of
        ok when Active =:= false -> ok;
        ok ->
            _ = erlane_nif:set_active(Ref, Active),
            ok;
        Error -> Error
    end.

move_messages(?SOCK(Ref) = Socket, To) ->
    receive
        {Tag, Socket, _} = M when Tag =:= tcp; Tag =:= tcp_error; Tag =:= http -> again(M, Ref, To);
        {Tag, Socket} = M when Tag =:= tcp_closed; Tag =:= tcp_passive -> again(M, Ref, To);
        {Socket, {data, _}} = M -> again(M, Ref, To);
        {ssl_tls, Socket, _, _, _} = M -> again(M, Ref, To)
    after 0 ->
        ok
    end.

again(Message, Ref, To) ->
    To ! Message,
    move_messages(?SOCK(Ref), To).

%% @doc For inet:monitor/1: `{'DOWN', MRef, socket, Socket, Reason}' at close.
-spec monitor(socket()) -> reference().
monitor(Socket) ->
    erlane_monitor:monitor(Socket).

%% @doc For inet:cancel_monitor/1.
-spec cancel_monitor(reference()) -> boolean().
cancel_monitor(MRef) ->
    erlane_monitor:cancel(MRef).

%%% Options, names, statistics

%% @doc For inet:setopts/2.
-spec setopts(socket(), [term()]) -> ok | error().
setopts(?SOCK(Ref), Opts) ->
    erlane_opts:set(Ref, Opts).

%% @doc For inet:getopts/2.
-spec getopts(socket(), [term()]) -> {ok, [term()]} | error().
getopts(?SOCK(Ref), Opts) ->
    erlane_opts:get(Ref, Opts).

%% @doc For inet:getstat/2: octets, packets, the largest, the mean and the mean
%% deviation of both directions, and bytes queued for sending.
-spec getstat(socket(), [inet:stat_option()]) ->
          {ok, [{inet:stat_option(), non_neg_integer()}]} | error().
getstat(?SOCK(Ref), Keys) ->
    case erlane_nif:stat(Ref) of
        [RecvOct, RecvCnt, RecvMax, RecvDvi, SendOct, SendCnt, SendMax, SendPend] ->
            Values = #{recv_oct => RecvOct, recv_cnt => RecvCnt, recv_max => RecvMax,
                       recv_avg => mean(RecvOct, RecvCnt), recv_dvi => RecvDvi,
                       send_oct => SendOct, send_cnt => SendCnt, send_max => SendMax,
                       send_avg => mean(SendOct, SendCnt), send_pend => SendPend},
            try {ok, [{Key, maps:get(Key, Values)} || Key <- Keys]}
            catch error:{badkey, _} -> {error, einval}
            end;
        Error ->
            Error
    end.

mean(_, 0) -> 0;
mean(Sum, N) -> Sum div N.

%% @doc For inet:sockname/1.
-spec sockname(socket()) -> {ok, term()} | error().
sockname(?SOCK(Ref)) -> erlane_nif:name(Ref, 0).

%% @doc For inet:peername/1.
-spec peername(socket()) -> {ok, term()} | error().
peername(?SOCK(Ref)) -> erlane_nif:name(Ref, 1).

%% @doc For inet:socknames/1.
-spec socknames(socket()) -> {ok, [term()]} | error().
socknames(Socket) ->
    case sockname(Socket) of
        {ok, Name} -> {ok, [Name]};
        {error, ebadf} -> {error, exbadport}; % gen_tcp's word for it
        Error -> Error
    end.

%% @doc For inet:port/1.
-spec port(socket()) -> {ok, inet:port_number()} | error().
port(Socket) ->
    case sockname(Socket) of
        {ok, {_, Port}} when is_integer(Port) -> {ok, Port};
        {ok, _} -> {error, einval};
        Error -> Error
    end.

%% @doc For inet:info/1. A closed socket has both states `[closed]'.
-spec info(socket()) -> map().
info(?SOCK(Ref) = Socket) ->
    {Owner, State, Reading, Writing, Waiters, Flags} = erlane_nif:info(Ref),
    Base = case State of
               _ when State =:= ?ST_CLOSED; State =:= ?ST_KEPT -> [closed];
               ?ST_LISTENING -> [listening, open];
               ?ST_CONNECTED -> [connected, open];
               ?ST_CONNECTING -> [connecting, open];
               ?ST_OPEN -> [open]
           end,
    Acceptors = case State of ?ST_LISTENING -> Waiters; _ -> 0 end,
    Info = #{type => stream, num_acceptors => Acceptors,
             rstates => state([{reading, Reading}, {accepting, Acceptors > 0},
                               {read_closed, Flags band 1 =/= 0}], Base),
             wstates => state([{sending, Writing}, {write_closed, Flags band 2 =/= 0},
                               {relay, Flags band 8 =/= 0}], Base)},
    case State of
        ?ST_CLOSED -> maps:with([rstates, wstates], Info);
        _ ->
            Counters = case getstat(Socket, inet:stats()) of
                           {ok, Stats} -> maps:from_list(Stats);
                           {error, _} -> #{}
                       end,
            Info#{owner => Owner, counters => Counters}
    end.

state(Flags, Base) -> [Name || {Name, true} <- Flags] ++ Base.

%% @doc For inet:socket_to_list/1.
-spec socket_to_list(socket()) -> string().
socket_to_list(?SOCK(Ref)) ->
    "#Ref" ++ Id = ref_to_list(Ref),
    "#erlane_tcp" ++ Id.

%% @doc For inet:i/0.
-spec which_packet_type(socket()) -> {ok, atom() | 1 | 2 | 4} | error.
which_packet_type(?SOCK(Ref)) ->
    case erlane_nif:getopt(Ref, ?OPT_PACKET) of
        {ok, Type} ->
            case erlane_packet:name(Type) of
                Name when is_atom(Name) -> {ok, Name};
                N -> {ok, list_to_atom(integer_to_list(N))}
            end;
        _ -> error
    end.

%%% Addresses

%% @doc This module's family.
-spec family() -> inet.
family() -> inet.

%% @doc An address under a netmask, for the distribution's handshake.
-spec mask(inet:ip_address(), inet:ip_address()) -> inet:ip_address().
mask(Mask, Ip) when tuple_size(Mask) =:= tuple_size(Ip) ->
    list_to_tuple(lists:zipwith(fun(A, B) -> A band B end, tuple_to_list(Mask),
                                tuple_to_list(Ip))).

%% @doc An IPv4 address from its text.
-spec parse_address(string()) -> {ok, inet:ip4_address()} | {error, einval}.
parse_address(Text) -> inet:parse_ipv4strict_address(Text).

%% @doc The number of a port, or of a service by its name.
-spec getserv(inet:port_number() | atom()) -> {ok, inet:port_number()} | error().
getserv(Port) when is_integer(Port) -> {ok, Port};
getserv(Name) when is_atom(Name) -> inet:getservbyname(Name, tcp).

%% @doc As getaddr/2 without a limit in time.
-spec getaddr(term()) -> {ok, term()} | error().
getaddr(Address) -> getaddr(Address, false).

%% @doc One address of a host.
-spec getaddr(term(), term()) -> {ok, term()} | error().
getaddr(Address, Timer) ->
    case getaddrs(Address, Timer) of
        {ok, [Ip | _]} -> {ok, Ip};
        Error -> Error
    end.

%% @doc As getaddrs/2 without a limit in time.
-spec getaddrs(term()) -> {ok, [term()]} | error().
getaddrs(Address) -> getaddrs(Address, false).

%% @doc The addresses of a host; an IPv6 address stays one.
-spec getaddrs(term(), term()) -> {ok, [term()]} | error().
getaddrs({local, _} = Address, _Timer) -> {ok, [Address]};
getaddrs({_, _, _, _, _, _, _, _} = Ip, Timer) -> inet:getaddrs_tm(Ip, inet6, Timer);
getaddrs(Address, Timer) -> inet:getaddrs_tm(Address, inet, Timer).

%% @doc `any' and `loopback' as addresses.
-spec translate_ip(term()) -> term().
translate_ip(Ip) -> inet:translate_ip(Ip, inet).
