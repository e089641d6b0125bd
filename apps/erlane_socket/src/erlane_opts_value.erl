%% SPDX-License-Identifier: Apache-2.0
%% @doc Option values: what an option does to a socket, and how it reads.
%%
%% Pure functions over two tables: this module's, of the options that the socket
%% keeps itself, and erlane_opts_kernel's. Types follow gen_tcp: integers of any
%% size are cut to 32 bits and raised to the least useful value.
-module(erlane_opts_value).

-export([encode/2, decode/2, number/1, netns/1]).

-export_type([action/0]).

-include("erlane_nif.hrl").

-type action() ::
        erlane_opts_kernel:action()
      | {own, OptNumber :: non_neg_integer(), integer()}
      | {high | low, High :: non_neg_integer(), Low :: non_neg_integer(), integer()}
      | {recbuf, integer(), erlane_opts_kernel:action()}
      | {active, boolean() | once | integer()}
      | fail.

-define(IS_COUNT(N), (is_integer(N) andalso N >= -32768 andalso N =< 32767)).

%% @doc What an option does to a socket: steps to take in order. Pure. `fail' is
%% a value of the right type that gen_tcp refuses only when its turn comes.
-spec encode(Key :: atom(), Value :: term()) -> [action()] | {error, unknown | badarg}.
encode(active, Value) when is_boolean(Value); Value =:= once; ?IS_COUNT(Value) ->
    [{active, Value}];
encode(active, _) ->
    {error, badarg};
encode(raw, {Level, Name, Value}) ->
    kernel(erlane_opts_kernel:encode_raw(Level, Name, Value));
encode(raw, _) ->
    {error, badarg};
encode(Key, Value) when Key =:= netns; Key =:= exclusiveaddruse ->
    stored(Key, Value);
encode(Key, Value) ->
    case own(Key) of
        {Type, Number} ->
            case own_value(Type, Value) of
                error -> {error, badarg};
                fail -> [fail];
                Int -> [own_action(Key, Number, Int)]
            end;
        undefined ->
            encode_kernel(Key, Value)
    end.

%% netns matters only when a socket is made, exclusiveaddruse only on Windows.
stored(netns, Value) ->
    case netns(Value) of
        error -> {error, badarg};
        _ -> []
    end;
stored(exclusiveaddruse, Value) when is_boolean(Value) -> [];
stored(exclusiveaddruse, _) -> {error, badarg}.

%% The two other watermarks drag each other where they are stored.
own_action(high_msgq_watermark, High, Int) -> {high, High, ?OPT_LOW_MSGQ, Int};
own_action(low_msgq_watermark, Low, Int) -> {low, ?OPT_HIGH_MSGQ, Low, Int};
own_action(_, Number, Int) -> {own, Number, Int}.

encode_kernel(Key, Value) ->
    case {erlane_opts_kernel:encode(Key, Value), Value} of
        {undefined, _} ->
            {error, unknown};
        {{kernel, _, _, _, _} = Kernel, {On, Seconds}} when Key =:= linger ->
            [{own, ?OPT_LINGER_ZERO, flag(On andalso int32(Seconds) =:= 0)}, Kernel];
        {{kernel, _, _, _, _} = Kernel, Size} when Key =:= recbuf ->
            [{recbuf, int32(Size), Kernel}];
        {Kernel, _} ->
            kernel(Kernel)
    end.

kernel({error, badarg} = Error) -> Error;
kernel(Action) -> [Action].

%% @doc The value of one of the socket's own options from its number.
-spec decode(Key :: atom(), integer()) -> term().
decode(active, -1) -> true;
decode(active, -2) -> once;
decode(active, 0) -> false;
decode(active, N) -> N;
decode(fd, N) -> N;
decode(Key, Int) ->
    {Type, _} = own(Key),
    decode_own(Type, Int).

%% @doc The number of one of the socket's own options.
-spec number(Key :: atom()) -> non_neg_integer() | undefined.
number(active) -> ?OPT_ACTIVE;
number(fd) -> ?OPT_FD;
number(Key) ->
    case own(Key) of
        {_, Number} -> Number;
        undefined -> undefined
    end.

own(mode) -> {{enum, modes()}, ?OPT_MODE};
own(packet) -> {{enum, packets()}, ?OPT_PACKET};
own(header) -> {uint, ?OPT_HEADER};
own(deliver) -> {{enum, delivers()}, ?OPT_DELIVER};
own(packet_size) -> {uint, ?OPT_PACKET_SIZE};
own(line_delimiter) -> {byte, ?OPT_LINE_DELIMITER};
own(buffer) -> {{from, 1}, ?OPT_BUFFER};
own(exit_on_close) -> {bool, ?OPT_EXIT_ON_CLOSE};
own(show_econnreset) -> {bool, ?OPT_SHOW_ECONNRESET};
own(high_watermark) -> {{from, 0}, ?OPT_HIGH_WATERMARK};
own(low_watermark) -> {{from, 0}, ?OPT_LOW_WATERMARK};
own(send_timeout) -> {time, ?OPT_SEND_TIMEOUT};
own(send_timeout_close) -> {bool, ?OPT_SEND_TIMEOUT_CLOSE};
own(delay_send) -> {bool, ?OPT_DELAY_SEND};
own(read_ahead) -> {bool, ?OPT_READ_AHEAD};
own(high_msgq_watermark) -> {msgq, ?OPT_HIGH_MSGQ};
own(low_msgq_watermark) -> {msgq, ?OPT_LOW_MSGQ};
own(debug) -> {bool, ?OPT_DEBUG};
own(_) -> undefined.

modes() -> [{list, 0}, {binary, 1}].

delivers() -> [{port, 0}, {term, 1}].

%% The first name of a number is the one that is read back.
packets() ->
    [{0, ?PB_RAW}, {raw, ?PB_RAW}, {1, ?PB_1}, {2, ?PB_2}, {4, ?PB_4}, {line, ?PB_LINE},
     {asn1, ?PB_ASN1}, {sunrm, ?PB_SUNRM}, {cdr, ?PB_CDR}, {fcgi, ?PB_FCGI},
     {tpkt, ?PB_TPKT}, {ssl, ?PB_SSL}, {ssl_tls, ?PB_SSL}, {http, ?PB_HTTP},
     {http_bin, ?PB_HTTP_BIN}, {httph, ?PB_HTTPH}, {httph_bin, ?PB_HTTPH_BIN}].

own_value({enum, Names}, V) ->
    case [Number || {Name, Number} <- Names, Name =:= V] of
        [Number] -> Number;
        [] -> error
    end;
own_value(bool, V) when is_boolean(V) -> flag(V);
own_value(uint, V) when is_integer(V), V >= 0 -> int32(V);
own_value(byte, V) when is_integer(V) -> V band 255;
own_value({from, Min}, V) when is_integer(V) -> max(Min, int32(V));
own_value(msgq, V) when is_integer(V) ->
    %% gen_tcp takes this one for unsigned; the last value means no limit.
    case int32(V) of
        Int when Int =:= 0; Int =:= -1 -> fail;
        Int when Int < 0 -> 16#7fffffff;
        Int -> Int
    end;
own_value(time, infinity) -> -1;
own_value(time, V) when is_integer(V), V >= 0 -> int32(V);
own_value(_, _) -> error.

decode_own({enum, Names}, Int) ->
    {Name, _} = lists:keyfind(Int, 2, Names),
    Name;
decode_own(bool, Int) -> Int =/= 0;
decode_own(uint, Int) -> Int band 16#ffffffff;
decode_own(time, -1) -> infinity;
decode_own(_, Int) -> Int.

flag(true) -> 1;
flag(false) -> 0.

int32(V) ->
    <<Int:32/signed>> = <<V:32>>,
    Int.

%% @doc The name of a network namespace as the kernel wants it.
-spec netns(term()) -> binary() | error.
netns(Name) when is_binary(Name) ->
    Name;
netns(Name) when is_list(Name) ->
    try unicode:characters_to_binary(Name, unicode, file:native_name_encoding()) of
        Bin when is_binary(Bin) -> Bin;
        _ -> error
    catch
        error:badarg -> error
    end;
netns(_) ->
    error.
