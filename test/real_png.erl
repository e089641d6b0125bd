%% SPDX-License-Identifier: Apache-2.0
%% Makes a screenshot small enough for the tree: at most 256 colours, and all the effort of zlib.
%% The pictures are of a page with few colours, and text whose edges are shades of them.
-module(real_png).

-export([size/1, compact/1]).

-define(HEAD, 137, "PNG\r\n", 26, 10).

%% Width and height.
size(<<?HEAD, 13:32, "IHDR", W:32, H:32, _/binary>>) -> {W, H}.

%% The same picture with a palette. Only for 8 bits a channel, not interlaced.
compact(<<?HEAD, 13:32, "IHDR", W:32, H:32, 8, Type, 0, 0, 0, _Crc:32, Chunks/binary>>) ->
    N = maps:get(Type, #{2 => 3, 6 => 4}),
    Data = zlib:uncompress(iolist_to_binary(data(Chunks))),
    Pixels = pixels(Data, W * N, N, binary:copy(<<0>>, W * N), []),
    Colours = [colour(Row, N) || Row <- Pixels],
    Counts = lists:foldl(fun count/2, #{}, lists:append(Colours)),
    Sorted = [C || {_, C} <- lists:reverse(lists:sort([{K, C} || {C, K} <- maps:to_list(Counts)]))],
    Palette = palette(Sorted, 0),
    Rest = Sorted -- Palette,
    Index = maps:from_list(lists:zip(Palette, lists:seq(0, length(Palette) - 1))),
    All = lists:foldl(fun(C, Acc) -> Acc#{C => maps:get(nearest(C, Palette), Index)} end, Index,
                      Rest),
    Rows = [[0 | [maps:get(C, All) || C <- Row]] || Row <- Colours],
    iolist_to_binary([<<?HEAD>>, chunk("IHDR", <<W:32, H:32, 8, 3, 0, 0, 0>>),
                      chunk("PLTE", [<<R, G, B>> || {R, G, B} <- Palette]),
                      chunk("IDAT", packed(Rows)), chunk("IEND", [])]).

%% The most frequent ones, but none that is as near as this to one that has been taken.
palette(Sorted, Near) ->
    case spread(Sorted, Near, []) of
        Palette when length(Palette) =< 256 -> Palette;
        _ -> palette(Sorted, 2 * Near + 1)
    end.

spread([], _, Palette) -> lists:reverse(Palette);
spread([Colour | Rest], Near, Palette) ->
    case lists:any(fun(Other) -> distance(Colour, Other) =< Near end, Palette) of
        true -> spread(Rest, Near, Palette);
        false -> spread(Rest, Near, [Colour | Palette])
    end.

distance({R, G, B}, {R1, G1, B1}) ->
    (R - R1) * (R - R1) + (G - G1) * (G - G1) + (B - B1) * (B - B1).

data(<<N:32, "IDAT", Data:N/binary, _:32, Rest/binary>>) -> [Data | data(Rest)];
data(<<_:32, "IEND", _/binary>>) -> [];
data(<<N:32, _:32, _:N/binary, _:32, Rest/binary>>) -> data(Rest).

%% Undoes the filter of each row.
pixels(<<>>, _, _, _, Acc) -> lists:reverse(Acc);
pixels(<<Filter, Rest/binary>>, Size, N, Above, Acc) ->
    <<Row:Size/binary, More/binary>> = Rest,
    Line = line(Filter, Row, Above, N),
    pixels(More, Size, N, Line, [Line | Acc]).

line(0, Row, _, _) -> Row;
line(Filter, Row, Above, N) ->
    Zero = lists:duplicate(N, 0),
    list_to_binary(line(Filter, binary_to_list(Row), binary_to_list(Above), Zero, Zero, N)).

%% `Left' and `Corner' are queues of the bytes of one pixel.
line(_, [], _, _, _, _) -> [];
line(Filter, [X | Row], [Up | Above], [L | Left], [C | Corner], N) ->
    Byte = (X + predicted(Filter, L, Up, C)) band 255,
    [Byte | line(Filter, Row, Above, Left ++ [Byte], Corner ++ [Up], N)].

predicted(1, Left, _, _) -> Left;
predicted(2, _, Up, _) -> Up;
predicted(3, Left, Up, _) -> (Left + Up) div 2;
predicted(4, Left, Up, Corner) ->
    P = Left + Up - Corner,
    {_, _, Best} = lists:min([{abs(P - Left), 1, Left}, {abs(P - Up), 2, Up},
                              {abs(P - Corner), 3, Corner}]),
    Best.

colour(Row, 3) -> [{R, G, B} || <<R, G, B>> <= Row];
colour(Row, 4) -> [{R, G, B} || <<R, G, B, _>> <= Row].

count(Colour, Counts) -> maps:update_with(Colour, fun(K) -> K + 1 end, 1, Counts).

nearest(Colour, Palette) ->
    {_, Best} = lists:min([{distance(Colour, Other), Other} || Other <- Palette]),
    Best.

packed(Rows) ->
    Z = zlib:open(),
    ok = zlib:deflateInit(Z, best_compression, deflated, 15, 9, default),
    Bytes = zlib:deflate(Z, Rows, finish),
    zlib:close(Z),
    Bytes.

chunk(Name, Data0) ->
    Data = iolist_to_binary([Name, Data0]),
    [<<(byte_size(Data) - 4):32>>, Data, <<(erlang:crc32(Data)):32>>].
