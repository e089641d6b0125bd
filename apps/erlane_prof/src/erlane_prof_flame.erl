%% SPDX-License-Identifier: Apache-2.0
%% A profile as a page of its own: an interactive flame graph. Style, script and data are in the
%% one file, which needs no network and may not use it.
%%
%% The page has the rows, not a finished picture: it filters, groups and compares by itself. Stacks
%% are a tree of frames, so that what they begin with alike is written once.
-module(erlane_prof_flame).

-export([format/1, data/1]).

-define(SCRIPTS, ["flame_model.js", "flame_colour.js", "flame_graph.js", "flame_page.js"]).
%% Beyond that many processes their labels alone tell them apart.
-define(MAX_PIDS, 500).

%% The page. Its files come from `priv'.
-spec format(erlane_prof_profile:profile()) -> iodata().
format(#{node := Node, mode := Mode} = Profile) ->
    Parts = #{<<"title">> => escape([atom_to_binary(Node), ", ", atom_to_binary(Mode)]),
              <<"style">> => file("flame.css"),
              <<"data">> => erlane_prof_text:json(data(Profile)),
              <<"script">> => [file(Script) || Script <- ?SCRIPTS]},
    [First | Pieces] = binary:split(file("flame.html"), <<"{{">>, [global]),
    [First | [begin
                  [Name, Rest] = binary:split(Piece, <<"}}">>),
                  [maps:get(Name, Parts), Rest]
              end || Piece <- Pieces]].

file(Name) ->
    {ok, Bytes} = file:read_file(filename:join(code:priv_dir(erlane_prof), Name)),
    Bytes.

escape(Text) ->
    Clean = erlane_prof_text:clean(iolist_to_binary(Text)),
    << <<(case C of $& -> <<"&amp;">>; $< -> <<"&lt;">>; _ -> <<C/utf8>> end)/binary>>
       || <<C/utf8>> <= Clean >>.

%% What the page gets. `nodes' has for each node of the tree its parent (-1: none) and its
%% function; `rows' has for each row its group, its innermost node, the line there, the values.
-spec data(erlane_prof_profile:profile()) -> erlane_prof_text:json().
data(#{mode := Mode, node := Node, otp := Otp, began := Began, ns := Ns, values := Columns,
       rows := Rows, lost := Lost, notes := Notes} = Profile) ->
    Pids = length(lists:usort([Pid || #{pid := Pid} <- Rows])) =< ?MAX_PIDS,
    T0 = #{strings => {#{}, 0}, functions => {#{}, 0}, groups => {#{}, 0}, nodes => {#{}, 0}},
    {Numbered, T1} = lists:mapfoldl(fun(Row, T) -> row(Row, Pids, T) end, T0, Rows),
    Merged = lists:foldl(fun({Key, Values}, Acc) ->
                                 maps:update_with(Key, fun(V) -> plus(V, Values) end, Values, Acc)
                         end, #{}, Numbered),
    #{mode => Mode, node => Node, otp => Otp, began => Began, ns => Ns, lost => Lost,
      notes => Notes, columns => Columns, base => maps:get(base, Profile, null),
      strings => ordered(strings, T1),
      functions => [[N, F, M] || {N, F, M} <- ordered(functions, T1)],
      groups => [tuple_to_list(Group) || Group <- ordered(groups, T1)],
      nodes => lists:append([[P, F] || {P, F} <- ordered(nodes, T1)]),
      rows => lists:append([[Group, Leaf, Line | Values]
                            || {{Group, Leaf, Line}, Values} <- lists:sort(maps:to_list(Merged))])}.

row(#{proc := Proc, state := State, stack := Stack, values := Values} = Row, Pids, T0) ->
    {P, T1} = number(strings, Proc, T0),
    {I, T2} = case Row of
                  #{pid := Pid} when Pids -> number(strings, Pid, T1);
                  #{} -> {-1, T1}
              end,
    {A, T3} = case Row of
                  #{app := App} -> number(strings, atom_to_binary(App), T2);
                  #{} -> {-1, T2}
              end,
    {S, T4} = number(strings, atom_to_binary(State), T3),
    {Group, T5} = number(groups, {P, I, A, S}, T4),
    {Leaf, T6} = lists:foldl(fun node/2, {-1, T5}, Stack),
    {{{Group, Leaf, line(lists:last(Stack))}, Values}, T6}.

node(Frame, {Parent, T0}) ->
    {Function, T1} = function(Frame, T0),
    number(nodes, {Parent, Function}, T1).

%% A function is its name, its file and its module.
function({M, F, A, File, _}, T0) ->
    {Name, T1} = number(strings, erlane_prof_text:name({M, F, A}), T0),
    {Path, T2} = number(strings, File, T1),
    {Module, T3} = number(strings, atom_to_binary(M), T2),
    number(functions, {Name, Path, Module}, T3);
function(Symbol, T0) ->
    {Name, T1} = number(strings, erlane_prof_text:name(Symbol), T0),
    number(functions, {Name, -1, -1}, T1).

line({_, _, _, _, Line}) -> Line;
line(_) -> 0.

number(Kind, Key, T) ->
    case T of
        #{Kind := {#{Key := N}, _}} -> {N, T};
        #{Kind := {Known, N}} -> {N, T#{Kind := {Known#{Key => N}, N + 1}}}
    end.

ordered(Kind, T) ->
    {Known, _} = maps:get(Kind, T),
    [Key || {Key, _} <- lists:keysort(2, maps:to_list(Known))].

plus(A, B) -> lists:zipwith(fun erlang:'+'/2, A, B).
