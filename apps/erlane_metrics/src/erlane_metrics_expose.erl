%% SPDX-License-Identifier: Apache-2.0
%% @doc Writes all series in a format, in pieces, in constant memory.
%%
%% The walk hands over one series at a time, the encoder appends it to a buffer, and a full
%% buffer goes to the callback, through a stream of zlib if asked for. What the callback throws
%% ends the walk.
%%
%% An encoder is a module of pure functions, with the callbacks below.
-module(erlane_metrics_expose).

-export([expose/3, expose/4, expose/5]).

-export_type([family/0, series/0, hist/0, type/0, encoding/0, walk/0]).

-type type() :: counter | gauge | histogram | info | stateset | summary.

-type family() ::
        #{name := binary(), type := type(), help := binary(), unit := binary(),
          labels := [binary()], decimals := 0..9, states => [binary()]}.
%% `name' is without the suffix of the samples. Integer values have `decimals' decimals.

-type series() ::
        {LabelText :: binary(), Labels :: [{binary(), binary()}],
         Value :: erlane_metrics_number:value() | hist() | [{binary(), binary()}] | [boolean()] |
                  #{count := non_neg_integer(), sum := integer(), unit_div := pos_integer(),
                    quantiles := [{float(), erlane_metrics_number:value()}]},
         CreatedMs :: integer()}.
%% The labels as escaped text and as they are; the value by the family's type: a number, a
%% histogram, pairs (info), a boolean for each state (state set), a summary; Unix time in
%% milliseconds.

-type hist() ::
        #{scale := 1..6 | custom, unit_div := pos_integer(), sum := integer(),
          zero := non_neg_integer(), over := non_neg_integer(), zero_threshold := float(),
          buckets := [non_neg_integer()], offset => integer(), bounds => [number()],
          _ => _}.
%% `sum' counts parts of the exposed unit, `unit_div' of them to one. Bucket K, counted from 0,
%% ends at 2^((offset + K) / 2^scale), or at bound K. The count of all is the sum of the counts.

-type encoding() :: identity | gzip.

-type walk() :: fun((fun(({family, family()} | {series, series()}, Acc) -> Acc), Acc) -> Acc).

-callback init(erlane_metrics_accept:format()) -> State :: term().
-callback family(family(), Buffer :: binary(), State) -> {binary(), State} when State :: term().
-callback series(series(), Buffer :: binary(), State) -> {binary(), State} when State :: term().
-callback finish(Buffer :: binary(), State :: term()) -> binary().

-define(PIECE, 65536).

-record(out, {encoder :: module(),
              state :: term(),
              buffer = <<>> :: binary(),
              zlib :: zlib:zstream() | undefined,
              %% Compressed bytes that make no full piece yet.
              held = [] :: iodata(),
              size = 0 :: non_neg_integer(),
              callback :: fun((iodata(), term()) -> term()),
              acc :: term()}).

%% @doc Calls `Fun(Piece, Acc)' with one piece after the other: 64 KB each, the last one less.
-spec expose(erlane_metrics_accept:format(), fun((iodata(), Acc) -> Acc), Acc) -> Acc.
expose(Format, Fun, Acc) ->
    expose(Format, identity, Fun, Acc).

%% @doc The same, compressed if asked for; compressed pieces have 64 KB or a little more.
-spec expose(erlane_metrics_accept:format(), encoding(), fun((iodata(), Acc) -> Acc), Acc) ->
          Acc.
expose(Format, Encoding, Fun, Acc) ->
    expose(fun erlane_metrics_walk:fold/2, Format, Encoding, Fun, Acc).

%% @doc The same for series of another source.
-spec expose(walk(), erlane_metrics_accept:format(), encoding(),
             fun((iodata(), Acc) -> Acc), Acc) -> Acc.
expose(Walk, Format, identity, Fun, Acc) ->
    run(Walk, Format, #out{encoder = encoder(Format), callback = Fun, acc = Acc});
expose(Walk, Format, gzip, Fun, Acc) ->
    Zlib = zlib:open(),
    try
        %% 16 more than the window's 15 bits: with the frame of gzip. Metrics are so repetitive
        %% that more effort gains little.
        ok = zlib:deflateInit(Zlib, best_speed, deflated, 16 + 15, 8, default),
        run(Walk, Format, #out{encoder = encoder(Format), zlib = Zlib, callback = Fun,
                               acc = Acc})
    after
        zlib:close(Zlib)
    end.

encoder(text) -> erlane_metrics_text;
encoder(openmetrics) -> erlane_metrics_text;
encoder(protobuf) -> erlane_metrics_proto.

run(Walk, Format, #out{encoder = Encoder} = Out) ->
    End = Walk(fun step/2, Out#out{state = Encoder:init(Format)}),
    Buffer = Encoder:finish(End#out.buffer, End#out.state),
    Last = write(Buffer, End#out{buffer = <<>>}),
    (finish(Last))#out.acc.

step({series, Series}, #out{encoder = Encoder, buffer = Buffer, state = State} = Out) ->
    wrote(Encoder:series(Series, Buffer, State), Out);
step({family, Family}, #out{encoder = Encoder, buffer = Buffer, state = State} = Out) ->
    wrote(Encoder:family(Family, Buffer, State), Out).

wrote({Buffer, State}, Out) when byte_size(Buffer) < ?PIECE ->
    Out#out{buffer = Buffer, state = State};
wrote({Buffer, State}, Out) ->
    write(Buffer, Out#out{state = State}).

%% Writes full pieces; what is left is the buffer.
write(<<Piece:?PIECE/binary, Rest/binary>>, Out) ->
    write(Rest, piece(Piece, Out));
write(Rest, Out) ->
    Out#out{buffer = Rest}.

piece(Piece, #out{zlib = undefined} = Out) ->
    call(Piece, Out);
piece(Piece, #out{zlib = Zlib} = Out) ->
    hold(zlib:deflate(Zlib, Piece), Out).

hold(Data, #out{held = Held, size = Size} = Out) ->
    case Size + iolist_size(Data) of
        Full when Full >= ?PIECE -> call([Held | Data], Out#out{held = [], size = 0});
        Part -> Out#out{held = [Held | Data], size = Part}
    end.

finish(#out{zlib = undefined, buffer = <<>>} = Out) ->
    Out;
finish(#out{zlib = undefined, buffer = Buffer} = Out) ->
    call(Buffer, Out);
finish(#out{zlib = Zlib, buffer = Buffer} = Out) ->
    #out{held = Held} = Last = hold(zlib:deflate(Zlib, Buffer, finish), Out),
    ok = zlib:deflateEnd(Zlib),
    case iolist_size(Held) of
        0 -> Last;
        _ -> call(Held, Last)
    end.

call(Piece, #out{callback = Fun, acc = Acc} = Out) ->
    Out#out{acc = Fun(Piece, Acc)}.
