%% SPDX-License-Identifier: Apache-2.0
%% A profile as pprof reads it: the protocol buffer of
%% <https://github.com/google/pprof/blob/main/proto/profile.proto>, compressed with gzip. Process,
%% pid, application and state are labels of the samples (`-tagfocus', `-tagroot'). Pure.
-module(erlane_prof_pprof).

-export([format/1, encode/1]).

%% The file.
-spec format(erlane_prof_profile:profile()) -> binary().
format(Profile) -> zlib:gzip(encode(Profile)).

%% The protocol buffer. Strings, functions and locations are numbered as they are met.
-spec encode(erlane_prof_profile:profile()) -> iodata().
encode(#{values := Columns, rows := Rows, began := Began, ns := Ns, notes := Notes,
         node := Node}) ->
    T0 = #{strings => #{<<>> => 0}, functions => #{}, locations => #{}},
    {Types, T1} = lists:mapfoldl(fun type/2, T0, Columns),
    [#{name := Main} | _] = Columns,
    {Samples, T2} = lists:mapfoldl(fun sample/2, T1, Rows),
    {Comments, T3} = lists:mapfoldl(fun(Note, T) -> string(erlane_prof_text:clean(Note), T) end,
                                    T2, Notes),
    {Name, T4} = string(atom_to_binary(Node), T3),
    {Default, T5} = string(atom_to_binary(Main), T4),
    #{strings := Strings, functions := Functions, locations := Locations} = T5,
    %% A mapping that says to have everything: pprof then looks for no binary.
    Mapping = [int(1, 1), int(5, Name), int(7, 1), int(8, 1), int(9, 1)],
    [[bytes(1, Type) || Type <- Types],
     [bytes(2, Sample) || Sample <- Samples],
     bytes(3, Mapping),
     [bytes(4, [int(1, N), int(2, 1), bytes(4, [int(1, F), int(2, Line)])])
      || {{F, Line}, N} <- by_number(Locations)],
     [bytes(5, [int(1, N), int(2, Called), int(3, Called), int(4, File)])
      || {{Called, File}, N} <- by_number(Functions)],
     [bytes(6, String) || {String, _} <- by_number(Strings)],
     int(9, Began * 1000),
     int(10, Ns),
     [packed(13, Comments) || Comments =/= []],
     int(14, Default)].

type(#{name := Name, unit := Unit}, T0) ->
    {Type, T1} = string(atom_to_binary(Name), T0),
    {Of, T2} = string(atom_to_binary(Unit), T1),
    {[int(1, Type), int(2, Of)], T2}.

%% The innermost frame comes first.
sample(#{stack := Stack, values := Values} = Row, T0) ->
    {Locations, T1} = lists:mapfoldl(fun location/2, T0, lists:reverse(Stack)),
    {Labels, T2} = lists:mapfoldl(fun label/2, T1,
                                  [{Key, Value} || Key <- [proc, pid, app, state],
                                                   #{Key := Value} <- [Row]]),
    {[packed(1, Locations), packed(2, Values), [bytes(3, Label) || Label <- Labels]], T2}.

label({Key, Value}, T0) ->
    {K, T1} = string(atom_to_binary(Key), T0),
    {V, T2} = string(text(Value), T1),
    {[int(1, K), int(2, V)], T2}.

text(Atom) when is_atom(Atom) -> atom_to_binary(Atom);
text(Binary) -> erlane_prof_text:clean(Binary).

location(Frame, T0) ->
    {File, Line} = place(Frame),
    {Name, T1} = string(erlane_prof_text:name(erlane_prof_profile:function(Frame)), T0),
    {Path, T2} = string(File, T1),
    {Function, T3} = number(functions, {Name, Path}, 1, T2),
    number(locations, {Function, Line}, 1, T3).

place({_, _, _, File, Line}) -> {erlane_prof_text:clean(File), Line};
place(_) -> {<<>>, 0}.

string(String, T) -> number(strings, String, 0, T).

number(Kind, Key, First, T) ->
    case T of
        #{Kind := #{Key := N}} -> {N, T};
        #{Kind := Known} ->
            N = First + map_size(Known),
            {N, T#{Kind := Known#{Key => N}}}
    end.

by_number(Known) -> lists:keysort(2, maps:to_list(Known)).

%%% the wire

int(_, 0) -> [];
int(Field, N) -> [varint(Field bsl 3), varint(N)].

packed(Field, Ns) -> bytes(Field, [varint(N) || N <- Ns]).

bytes(Field, Data) -> [varint(Field bsl 3 bor 2), varint(iolist_size(Data)), Data].

%% Negative numbers are written as 64 bits.
varint(N) when N < 0 -> varint(N band 16#FFFFFFFFFFFFFFFF);
varint(N) when N < 128 -> <<N>>;
varint(N) -> [<<1:1, N:7>>, varint(N bsr 7)].
