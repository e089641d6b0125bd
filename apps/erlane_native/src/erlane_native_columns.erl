%% SPDX-License-Identifier: Apache-2.0
%% @doc Where in a line something stands, as the compiler's SSA knows lines only. Pure.
%%
%% A message about `+' or about a call stands where the first such operator or call of its line
%% does; any other where its line begins.
-module(erlane_native_columns).

-export([find/2, location/3]).

-export_type([found/0]).

-type found() :: #{Line :: integer() => Column :: pos_integer(),
                   {Line :: integer(), Why :: string()} => Column :: pos_integer(),
                   {function, erlane_native_ssa:fa()} => {First :: integer(), Last :: integer()}}.

%% @doc Columns of messages and of the beginning of each line, unless the forms have none, and the
%% lines of each function.
-spec find([erlane_native_translate:refusal()], [erl_parse:abstract_form()]) -> found().
find(Messages, Forms) ->
    Nodes = lists:append([places(F) || {function, _, _, _, _} = F <- Forms]),
    Lines = lists:foldl(fun({L, C, _}, Acc) ->
                            maps:update_with(L, fun(Old) -> min(Old, C) end, C, Acc)
                        end, maps:from_list([{{function, {F, A}}, lines(Form)}
                                             || {function, _, F, A, _} = Form <- Forms]), Nodes),
    Named = lists:foldl(fun({_, _, none}, Acc) -> Acc;
                           ({L, C, Word}, Acc) ->
                                maps:update_with(L, fun(Ws) -> [{C, Word} | Ws] end, [{C, Word}],
                                                 Acc)
                        end, #{}, Nodes),
    lists:foldl(fun({_, L, Why}, Acc) ->
                    case [C || {C, Word} <- maps:get(L, Named, []), mentions(Why, Word)] of
                        [] -> Acc;
                        Columns -> Acc#{{L, Why} => lists:min(Columns)}
                    end
                end, Lines, Messages).

lines(Form) ->
    Lines = lines(Form, []),
    {lists:min(Lines), lists:max(Lines)}.

lines({function, Anno, _, _, Clauses}, []) -> lines(Clauses, [erl_anno:line(Anno)]);
%% Pairs are locations, or sizes of what is in a binary.
lines(T, Acc) when is_tuple(T), tuple_size(T) > 2 ->
    lists:foldl(fun lines/2, case place(element(2, T)) of
                                 none -> Acc;
                                 Line -> [Line | Acc]
                             end, tuple_to_list(T));
lines([H | T], Acc) -> lines(T, lines(H, Acc));
lines(_, Acc) -> Acc.

%% A place in a tree; a location that is a bare line looks like any other number.
place(L) when is_integer(L), L > 0 -> L;
place(Anno) ->
    case location(Anno) of
        {Line, _} -> Line;
        none -> none
    end.

mentions(Why, Word) ->
    re:run([$\s, Why, $\s], ["(?<=[\\s:'])\\Q", Word, "\\E(?=[\\s/',])"],
           [{capture, none}, unicode]) =:= match.

%% @doc A location as the compiler writes it: with a column where one is known.
-spec location(integer(), string(), found()) -> integer() | {integer(), pos_integer()}.
location(Line, Why, Columns) ->
    case Columns of
        #{{Line, Why} := Column} -> {Line, Column};
        #{Line := Column} -> {Line, Column};
        _ -> Line
    end.

%% All that has a place: line, column, and the name of an operator or a function that is called.
places(Node) when is_tuple(Node), tuple_size(Node) >= 2 ->
    case location(element(2, Node)) of
        {Line, Column} -> [{Line, Column, word(Node)} | places(tuple_to_list(Node))];
        none -> places(tuple_to_list(Node))
    end;
places([H | T]) -> places(H) ++ places(T);
places(_) -> [].

location({Line, Column}) when is_integer(Line), is_integer(Column) -> {Line, Column};
location([{_, _} | _] = Anno) ->
    case lists:keyfind(location, 1, Anno) of
        {_, {Line, Column}} when is_integer(Line), is_integer(Column) -> {Line, Column};
        _ -> none
    end;
location(_) -> none.

word({op, _, Op, _, _}) -> atom_to_list(Op);
word({op, _, Op, _}) -> atom_to_list(Op);
word({call, _, {atom, _, F}, _}) -> atom_to_list(F);
word({call, _, {remote, _, {atom, _, _}, {atom, _, F}}, _}) -> atom_to_list(F);
word(_) -> none.
