%% SPDX-License-Identifier: Apache-2.0
%% @doc Values of whole families at once, for a program of its own; a scrape uses
%% {@link erlane_metrics_walk}, which holds less.
-module(erlane_metrics_snapshot).

-export([family/1, all/0]).

-type values() :: #{[binary()] | overflow => term()}.

%% @doc The series of a family by name.
-spec family(binary()) -> values().
family(Name) -> values(#{name => Name}).

%% @doc All families that store series.
-spec all() -> #{binary() => values()}.
all() ->
    maps:from_list([{Name, values(D)}
                    || #{name := Name, store := Store} = D <- erlane_metrics_walk:families(),
                       Store =/= callback]).

values(Declaration) ->
    erlane_metrics_walk:family(
        Declaration,
        fun({_, Labels}, _Text, Stored, _Created, Acc) ->
                Acc#{Labels => erlane_metrics_read:exposed(Stored, #{})}
        end, #{}).
