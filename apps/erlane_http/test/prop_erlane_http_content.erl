%% SPDX-License-Identifier: Apache-2.0
-module(prop_erlane_http_content).

-include_lib("proper/include/proper.hrl").

-export([prop_ranges_are_within/0, prop_multipart_length/0]).
-export([prop_events_are_read/0, prop_no_forged_events/0]).
-export([read_events/1]).

%% No header crashes it; what is selected lies within the file, without overlap, and is exactly
%% what the header asks for.
prop_ranges_are_within() ->
    ?FORALL({Header, Size}, {range_header(), integer(1, 60)},
            case erlane_http_range:select(Header, Size) of
                {ok, Pieces} ->
                    Bytes = lists:append([lists:seq(O, O + N - 1) || {O, N} <- Pieces]),
                    Bytes =/= []
                        andalso lists:usort(Bytes) =:= lists:sort(Bytes)
                        andalso lists:max(Bytes) < Size
                        andalso lists:usort(Bytes) =:= wanted(Header, Size);
                unsatisfiable -> wanted(Header, Size) =:= [];
                ignore -> true
            end).

%% Slowly and plainly: byte by byte.
wanted(<<"bytes=", Set/binary>>, Size) ->
    Specs = [binary:split(S, <<"-">>) || S <- binary:split(Set, <<",">>, [global]), S =/= <<>>],
    [B || B <- lists:seq(0, Size - 1), lists:any(fun(S) -> is_in(B, S, Size) end, Specs)].

is_in(B, [<<>>, N], Size) -> B >= Size - binary_to_integer(N);
is_in(B, [From, <<>>], _) -> B >= binary_to_integer(From);
is_in(B, [From, To], _) -> B >= binary_to_integer(From) andalso B =< binary_to_integer(To).

range_header() ->
    ?LET(Specs, list(frequency([{10, spec()}, {1, <<>>}, {1, <<"1-x">>}])),
         iolist_to_binary(["bytes=", lists:join(",", Specs)])).

spec() ->
    ?LET({A, B}, {non_neg_integer(), non_neg_integer()},
         oneof([iolist_to_binary(io_lib:format("~b-~b", [min(A, B), max(A, B)])),
                iolist_to_binary(io_lib:format("~b-", [A])),
                iolist_to_binary(io_lib:format("-~b", [B])),
                iolist_to_binary(io_lib:format("~b-~b", [A, B]))])).

%% The length that is announced is the length of what is then sent.
prop_multipart_length() ->
    ?FORALL({Pieces, Size},
            {non_empty(list({non_neg_integer(), pos_integer()})), integer(1, 1 bsl 70)},
            begin
                {Parts, End, Length} =
                    erlane_http_range:multipart(Pieces, Size, <<"text/plain">>, <<"boundary">>),
                Body = [[Before, binary:copy(<<"x">>, N)] || {Before, {_, N}} <- Parts],
                iolist_size([Body, End]) =:= Length
                    andalso [Piece || {_, Piece} <- Parts] =:= Pieces
            end).

%% What is sent is what a browser's reader understands.
prop_events_are_read() ->
    ?FORALL(Events, list(event()),
            read_events(iolist_to_binary([erlane_http_sse:event(E) || E <- Events])) =:=
                [understood(E) || E <- Events, is_map_key(data, E)]).

understood(#{data := Data} = Event) ->
    Lines = binary:replace(Data, [<<"\r\n">>, <<"\r">>], <<"\n">>, [global]),
    {maps:get(event, Event, <<"message">>), Lines}.

event() ->
    ?LET(Pairs, list(oneof([{data, text()}, {comment, text()}, {id, line()},
                            {event, ?SUCHTHAT(L, line(), L =/= <<>>)},
                            {retry, non_neg_integer()}])),
         maps:from_list(Pairs)).

text() -> ?LET(Parts, list(oneof([line(), <<"\n">>, <<"\r">>, <<"\r\n">>, <<":">>, <<" ">>,
                                  <<"data: x">>])), iolist_to_binary(Parts)).

line() -> ?LET(T, utf8(), binary:replace(T, [<<"\n">>, <<"\r">>, <<0>>], <<>>, [global])).

%% Whatever a text has in it, it is one event.
prop_no_forged_events() ->
    ?FORALL({Key, Text}, {oneof([event, id]), text()},
            try iolist_to_binary(erlane_http_sse:event(#{Key => Text, data => <<"x">>})) of
                Bytes -> length(read_events(Bytes)) =:= 1
            catch
                error:{bad_event, Key, Text} ->
                    binary:match(Text, [<<"\n">>, <<"\r">>]) =/= nomatch
            end).

%% @doc The events in a stream, `{Type, Data}', read as the HTML standard tells a browser to.
-spec read_events(binary()) -> [{binary(), binary()}].
read_events(Bytes) ->
    Lines = binary:split(Bytes, [<<"\r\n">>, <<"\n">>, <<"\r">>], [global]),
    read_lines(Lines, <<>>, <<>>).

read_lines([<<>> | Rest], _Type, <<>>) ->
    read_lines(Rest, <<>>, <<>>);
read_lines([<<>> | Rest], Type, Data) ->
    Name = case Type of <<>> -> <<"message">>; _ -> Type end,
    [{Name, binary:part(Data, 0, byte_size(Data) - 1)} | read_lines(Rest, <<>>, <<>>)];
read_lines([<<":", _/binary>> | Rest], Type, Data) ->
    read_lines(Rest, Type, Data);
read_lines([Line | Rest], Type, Data) ->
    {Field, Value} = case binary:split(Line, <<":">>) of
                         [F, <<" ", V/binary>>] -> {F, V};
                         [F, V] -> {F, V};
                         [F] -> {F, <<>>}
                     end,
    case Field of
        <<"data">> -> read_lines(Rest, Type, <<Data/binary, Value/binary, "\n">>);
        <<"event">> -> read_lines(Rest, Value, Data);
        _ -> read_lines(Rest, Type, Data)
    end;
read_lines([], _Type, _Data) ->
    [].
