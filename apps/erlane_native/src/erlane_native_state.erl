%% SPDX-License-Identifier: Apache-2.0
%% @doc What a companion's machine code has counted, and its modes; erlane_native_meter writes what
%% is read here.
-module(erlane_native_state).

-export([info/1, fresh/1, started/1, switch/3]).

-define(OFF, 2).
-define(MEASURE, 4).
-define(VERIFY, 8).
-define(OFF_WHY, "it handed back more than half of its calls at once").

%% @doc What {@link erlane_native:info/1} says.
-spec info(module()) -> map().
info(Companion) ->
    #{units := Units, refused := Refused, reasons := Reasons} = Companion:info(),
    [Yields | Counts] = case tuple_to_list(Companion:counts()) of
                            [] -> [0 | [0 || _ <- Reasons]];
                            List -> List
                        end,
    Meters = [{FA, I, M} || {FA, I, _} <- Units,
                            {_, _, _, _, _, _, _, _} = M <- [read(Companion, I)]],
    #{state => erlane_native_load:state(Companion),
      functions => [FA || {FA, _, _} <- Units], refused => Refused, yields => Yields,
      deopts => [{FA, Line, Why, N}
                 || {{FA, Line, Why}, N} <- lists:zip(Reasons, Counts), N > 0],
      off => [{FA, ?OFF_WHY} || {FA, _, M} <- Meters, element(1, M) band ?OFF =/= 0],
      measured => [{FA, element(2, M), element(3, M)}
                   || {FA, _, M} <- Meters, element(1, M) band ?MEASURE =/= 0],
      verified => [FA || {FA, _, M} <- Meters, element(1, M) band ?VERIFY =/= 0],
      differences => [{FA, N} || {FA, I, _} <- Units,
                                 N <- [erlane_native_load:differences({Companion, I})], N > 0]}.

%% @doc All functions native again, whatever they handed back.
-spec fresh(module()) -> ok.
fresh(Companion) ->
    each(Companion, fun(Mode) -> Mode band (?MEASURE bor ?VERIFY) end).

%% @doc After the machine code was loaded: what the environment wants.
-spec started(module()) -> ok.
started(Companion) ->
    case os:getenv("ERLANE_NATIVE_VERIFY") of
        "1" -> switch(Companion, verify, on);
        _ -> ok
    end.

%% @doc Sets or clears one mode.
-spec switch(module(), measure | verify, on | off) -> ok.
switch(Companion, What, Switch) ->
    Bit = case What of measure -> ?MEASURE; verify -> ?VERIFY end,
    Kept = ?OFF bor ?MEASURE bor ?VERIFY,
    each(Companion, fun(Mode) when Switch =:= on -> (Mode band Kept) bor Bit;
                       (Mode) -> Mode band Kept band bnot Bit
                    end).

each(Companion, New) ->
    #{units := Units} = Companion:info(),
    _ = [Companion:meter(I, New(element(1, M)))
         || {_, I, _} <- Units, {_, _, _, _, _, _, _, _} = M <- [read(Companion, I)]],
    ok.

read(Companion, I) -> Companion:meter(I, -1).
