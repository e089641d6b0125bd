%% SPDX-License-Identifier: Apache-2.0
%% A profile as bytes and back, with nothing lost: a line with the version, then a compressed term
%% without a single atom. Strings and frames are written once. Pure.
%%
%% A file may come from anybody: atoms, which the VM never forgets, are made of its names only
%% after these have been counted, and it may not grow without bound when it is unpacked.
-module(erlane_prof_stored).

-export([encode/1, decode/1]).

-define(MAGIC, "erlane-profile 1\n").
-define(MAX_NAMES, 200000).
-define(MAX_BYTES, 256 bsl 20).

%% The bytes of a file.
-spec encode(erlane_prof_profile:profile()) -> iodata().
encode(#{mode := Mode, node := Node, otp := Otp, began := Began, ns := Ns, values := Columns,
         rows := Rows, lost := Lost, notes := Notes} = Profile) ->
    {Stored, {Frames, _}} = lists:mapfoldl(fun row/2, {#{}, 0}, Rows),
    Base = case Profile of
               #{base := #{node := N, began := B, ns := Took}} -> {atom_to_binary(N), B, Took};
               #{} -> <<>>
           end,
    Head = {atom_to_binary(Mode), atom_to_binary(Node), Otp, Began, Ns, Lost, Notes, Base,
            [{atom_to_binary(C), atom_to_binary(U)} || #{name := C, unit := U} <- Columns]},
    Listed = [frame(F) || {_, F} <- lists:sort([{I, F} || {F, I} <- maps:to_list(Frames)])],
    Whole = case Profile of
                #{latency := Spreads} ->
                    {Head, Listed, Stored, [erlane_prof_spread:encode(S) || S <- Spreads]};
                #{} -> {Head, Listed, Stored}
            end,
    [?MAGIC, zlib:compress(term_to_binary(Whole))].

row(#{proc := Proc, state := State, stack := Stack, values := Values} = Row, Known) ->
    {Numbers, More} = lists:mapfoldl(fun number/2, Known, Stack),
    Pid = maps:get(pid, Row, <<>>),
    App = atom_to_binary(maps:get(app, Row, '')),
    {{Proc, Pid, App, atom_to_binary(State), Numbers, Values}, More}.

number(Frame, {Frames, Next}) ->
    case Frames of
        #{Frame := N} -> {N, {Frames, Next}};
        #{} -> {Next, {Frames#{Frame => Next}, Next + 1}}
    end.

frame({M, F, A, File, Line}) -> {atom_to_binary(M), atom_to_binary(F), A, File, Line};
frame(Symbol) -> Symbol.

%% The profile in the bytes of a file. `{version, V}' is a file of another version of erlane.
-spec decode(binary()) -> {ok, erlane_prof_profile:profile()}
              | {error, not_a_profile | damaged | too_large | too_many_names | {version, binary()}}.
decode(<<?MAGIC, Packed/binary>>) ->
    case unpacked(Packed) of
        {ok, Bytes} ->
            %% What is inside may be anything at all.
            try profile(binary_to_term(Bytes, [safe])) of
                Answer -> Answer
            catch
                error:_ -> {error, damaged}
            end;
        {error, _} = Error -> Error
    end;
decode(<<"erlane-profile ", Rest/binary>>) ->
    {error, {version, hd(binary:split(binary:part(Rest, 0, min(20, byte_size(Rest))), <<"\n">>))}};
decode(Bytes) when is_binary(Bytes) -> {error, not_a_profile}.

unpacked(Packed) ->
    Z = zlib:open(),
    try
        ok = zlib:inflateInit(Z),
        inflate(zlib:safeInflate(Z, Packed), Z, [], 0)
    catch
        error:_ -> {error, damaged}
    after
        zlib:close(Z)
    end.

inflate({Going, Part}, Z, Parts, Size0) ->
    Size = Size0 + iolist_size(Part),
    case Going of
        _ when Size > ?MAX_BYTES -> {error, too_large};
        finished ->
            %% Fails if the end is missing.
            ok = zlib:inflateEnd(Z),
            {ok, iolist_to_binary(lists:reverse([Part | Parts]))};
        continue -> inflate(zlib:safeInflate(Z, []), Z, [Part | Parts], Size)
    end.

profile({Head, Frames, Rows}) ->
    profile(Head, Frames, Rows, none);
profile({Head, Frames, Rows, Spreads}) ->
    profile(Head, Frames, Rows, Spreads).

profile(Head, Frames, Rows, Spreads) ->
    {Mode, Node, Otp, Began, Ns, Lost, Notes, Base, Columns} = Head,
    Names = lists:usort(lists:append([[M, F] || {M, F, _, _, _} <- Frames])
                        ++ [App || {_, _, App, _, _, _} <- Rows]
                        ++ [Name || {Name, _} <- Columns]
                        ++ lists:append([erlane_prof_spread:names(S) || Spreads =/= none,
                                                                       S <- Spreads])),
    case length(Names) > ?MAX_NAMES of
        true -> {error, too_many_names};
        false ->
            Places = list_to_tuple([named(Frame) || Frame <- Frames]),
            Fields = #{mode => known(Mode, [sample, time, memory, trace, perf, latency]),
                       node => binary_to_atom(Node), otp => Otp, began => Began, ns => Ns,
                       lost => Lost, notes => Notes,
                       values => [#{name => binary_to_atom(Name),
                                    unit => known(Unit, [count, nanoseconds, bytes, words])}
                                  || {Name, Unit} <- Columns],
                       rows => [read(Row, Places) || Row <- Rows]},
            {ok, erlane_prof_profile:new(latency(Spreads, base(Base, Fields)))}
    end.

latency(none, Fields) -> Fields;
latency(Spreads, Fields) ->
    Fields#{latency => [erlane_prof_spread:decode(S, fun binary_to_atom/1) || S <- Spreads]}.

base(<<>>, Fields) -> Fields;
base({Node, Began, Ns}, Fields) ->
    Fields#{base => #{node => binary_to_atom(Node), began => Began, ns => Ns}}.

named({M, F, A, File, Line}) -> {binary_to_atom(M), binary_to_atom(F), A, File, Line};
named(Symbol) when is_binary(Symbol) -> Symbol.

read({Proc, Pid, App, State, Numbers, Values}, Places) ->
    States = [running, runnable, waiting, gc, suspended, no_answer, any],
    Row = #{proc => Proc, state => known(State, States), values => Values,
            stack => [element(N + 1, Places) || N <- Numbers]},
    Named = case Pid of <<>> -> Row; _ -> Row#{pid => Pid} end,
    case App of <<>> -> Named; _ -> Named#{app => binary_to_atom(App)} end.

known(Name, Atoms) ->
    [Atom] = [A || A <- Atoms, atom_to_binary(A) =:= Name],
    Atom.
