%% SPDX-License-Identifier: Apache-2.0
%% @doc How each function runs, line by line: what `erlane_native:explain/1' and
%% `erlane native explain' say.
%%
%% The text of the machine code tells: it has the line of the source before what was made of it, so
%% the calls of the NIF interface can be seen, and each place that hands back has its reason.
-module(erlane_native_explain).

-export([explain/1, format/1, text/1]).

-export_type([explanation/0]).

-type explanation() :: #{module := module(), file := file:filename(), functions := [about()]}.
-type about() :: #{name := erlane_native_ssa:fa(), line := integer(),
                      column := pos_integer() | none,
                      state := native | within | {beam, Why :: string()},
                      remedy := none | string(), lines := [line()]}.
%% `within': compiled with the native functions that call it, and on BEAM for others.
-type line() :: #{line := integer(), column := pos_integer() | none,
                  kind := native | boxed | api, api := [string()],
                  deopts := [{Column :: pos_integer() | none, Why :: string(),
                              Remedy :: none | string(), SoFar :: non_neg_integer()}]}.
%% `boxed': makes terms of values, or takes values out of terms. `api': calls the interface of NIFs
%% for more than that.

%% @doc Of a source file: the functions that it names, or, if it names none, those that `load/1'
%% would take. Of a module that is native: what it has, with its counts. Of another one: what
%% `load/1' would do.
-spec explain(file:filename() | module()) -> {ok, explanation()} | {error, string()}.
explain(Module) when is_atom(Module) ->
    try Module:'\ncompanion'() of
        {none, Refused} ->
            {ok, of_result(Module, beam_file(Module),
                           #{taken => [], refused => Refused, text => [], reasons => [],
                             columns => #{}}, #{})};
        {Companion, _} ->
            #{units := Units, text := Text, file := File} = Info = Companion:info(),
            #{deopts := Deopts} = erlane_native_state:info(Companion),
            Counts = maps:from_list([{{Line, Why}, N} || {_, Line, Why, N} <- Deopts]),
            {ok, of_result(Module, File, Info#{taken => Units, text := zlib:uncompress(Text)},
                           Counts)}
    catch
        error:undef -> of_source(source(Module))
    end;
explain(File) ->
    of_source(source(File)).

%% @doc The LLVM text of the functions that {@link explain/1} tells of.
-spec text(file:filename() | module()) -> {ok, iodata()} | {error, string()}.
text(Module) when is_atom(Module) ->
    case code:ensure_loaded(Module) of
        {module, _} -> ok;
        {error, _} -> none
    end,
    case erlane_native:ir(Module) of
        {ok, Text} -> {ok, Text};
        {error, not_native} -> text_of(source(Module))
    end;
text(File) -> text_of(source(File)).

text_of(Source) ->
    case translated(Source) of
        {ok, #{taken := []}} -> {error, "no function of it is taken"};
        {ok, #{text := Text}} -> {ok, Text};
        Error -> Error
    end.

source(Module) when is_atom(Module) ->
    case code:which(Module) of
        [_ | _] = File -> erlane_native_source:object(File);
        _ -> {error, lists:flatten(io_lib:format("~tp: there is no object code", [Module]))}
    end;
source(File) ->
    case filename:extension(File) of
        ".beam" -> erlane_native_source:object(File);
        _ -> erlane_native_source:file(File)
    end.

beam_file(Module) ->
    case code:which(Module) of
        [_ | _] = File -> File;
        _ -> atom_to_list(Module)
    end.

of_source({error, _} = Error) -> Error;
of_source({ok, #{module := Module, forms := Forms}} = Source) ->
    case translated(Source) of
        {ok, Result} ->
            {ok, of_result(Module, hd([F || {attribute, _, file, {F, _}} <- Forms]
                                      ++ [atom_to_list(Module)]), Result, #{})};
        Error -> Error
    end.

translated({error, _} = Error) -> Error;
translated({ok, #{forms := Forms, options := Options}}) ->
    try {erlane_native_forms:natives(Forms), erlane_native_translate:ssa(Forms, Options)} of
        {_, error} -> {error, "it does not compile"};
        {Natives, {ok, Ssa}} ->
            {Units, Refused} =
                case Natives of
                    [] -> {ok, Us, Rs} = erlane_native_swap:choose(Forms, Ssa), {Us, Rs};
                    _ -> erlane_native_translate:named(Natives, Ssa, Forms)
                end,
            {ok, erlane_native_translate:text(Forms, Units, Refused, Natives)}
    catch
        throw:{attribute, Line, Why} ->
            {error, lists:flatten(io_lib:format("~b: -native: ~ts", [Line, Why]))}
    end.

of_result(Module, File, #{taken := Taken, refused := Refused, text := Text, reasons := Reasons,
                          columns := Columns}, Counts) ->
    Api = calls(Text),
    Deopts = lists:foldl(fun({_, _, "the state is not one of the loop"}, Acc) ->
                                 %% Cannot be: erlane_native made the state.
                                 Acc;
                            ({_, Line, Why}, Acc) ->
                             maps:update_with(Line, fun(Ws) -> lists:usort([Why | Ws]) end, [Why],
                                              Acc)
                         end, #{}, Reasons),
    Lines = lists:usort(maps:keys(Api) ++ maps:keys(Deopts)),
    Named = [FA || {FA, _, _} <- Taken],
    Places = lists:keysort(2, [{FA, Place} || {{function, FA}, Place} <- maps:to_list(Columns)]
                           ++ [{FA, {Line, Line}} || {FA, Line, _} <- Refused,
                                                     not is_map_key({function, FA}, Columns)]),
    #{module => Module, file => File,
      functions =>
          [#{name => FA, line => First, column => maps:get(First, Columns, none), state => State,
             remedy => case State of {beam, Why} -> erlane_native_words:remedy(Why); _ -> none end,
             lines => case State of
                          {beam, Why} -> refusal(FA, Why, Refused, Columns);
                          _ -> [line(L, Api, Deopts, Columns, Counts)
                                || L <- Lines, L >= First, L =< Last]
                      end}
           || {FA, {First, Last}} <- Places,
              State <- [state(FA, Named, Refused, [L || L <- Lines, L >= First, L =< Last])],
              State =/= none]}.

state(FA, Named, Refused, Lines) ->
    case {lists:member(FA, Named), lists:keyfind(FA, 1, Refused), Lines} of
        {true, _, _} -> native;
        {false, {_, _, Why}, _} -> {beam, Why};
        {false, false, [_ | _]} -> within;
        {false, false, []} -> none
    end.

%% Where the reason is.
refusal(FA, Why, Refused, Columns) ->
    {_, Line, _} = lists:keyfind(FA, 1, Refused),
    Column = case erlane_native_columns:location(Line, Why, Columns) of
                 {_, C} -> C;
                 _ -> none
             end,
    [#{line => Line, column => Column, kind => api, api => [], deopts => []}].

line(Line, Api, Deopts, Columns, Counts) ->
    Calls = maps:get(Line, Api, []),
    #{line => Line, column => maps:get(Line, Columns, none),
      kind => case [C || C <- Calls, not boxing(C)] of
                  [_ | _] -> api;
                  [] when Calls =/= [] -> boxed;
                  [] -> native
              end,
      api => lists:usort([erlane_native_words:api(C) || C <- Calls]),
      deopts => [{case erlane_native_columns:location(Line, Why, Columns) of
                      {_, C} -> C;
                      _ -> none
                  end, Why, erlane_native_words:remedy(Why), maps:get({Line, Why}, Counts, 0)}
                 || Why <- maps:get(Line, Deopts, [])]}.

boxing(Call) ->
    lists:member(Call, ["get_long", "get_ulong", "get_double", "inspect_binary", "make_long",
                        "make_ulong", "make_double"]).

%% Which functions of the interface are called in what was made of each line. Giving way is not
%% part of a line.
calls(Text) ->
    Marks = case re:run(Text, "^ *; line ([0-9]+)$"
                        "|@(?:enif_|term_(?=get_long|get_double|make_long))([a-z_0-9]+)\\(",
                        [global, multiline, {capture, all_but_first, list}]) of
                {match, Found} -> Found;
                nomatch -> []
            end,
    {_, Lines} = lists:foldl(fun([Line], {_, Acc}) ->
                                     L = list_to_integer(Line),
                                     {L, maps:merge(#{L => []}, Acc)};
                                ([_, "consume_timeslice"], Acc) -> Acc;
                                ([_, Call], {L, Acc}) ->
                                     Add = fun(Cs) -> lists:usort([Call | Cs]) end,
                                     {L, maps:update_with(L, Add, [Call], Acc)}
                             end, {0, #{}}, Marks),
    maps:remove(0, Lines).

%% @doc One line for each thing to say: `file:line:column: what'.
-spec format(explanation()) -> iolist().
format(#{file := File, functions := Functions}) ->
    [format(File, F) || F <- Functions].

format(File, #{name := {F, A}, state := {beam, Why}, remedy := Remedy,
               lines := [#{line := Line, column := Column}]}) ->
    message(File, Line, Column,
            [io_lib:format("~tp/~b stays on BEAM: ~ts", [F, A, Why]),
             [["; ", Remedy] || Remedy =/= none]]);
format(File, #{name := {F, A}, line := Line, column := Column, state := State, lines := Lines}) ->
    [message(File, Line, Column,
             io_lib:format("~tp/~b is ~ts", [F, A, case State of
                                                       native -> "native";
                                                       within -> "native where native code calls it"
                                                   end])),
     [said(File, L) || L <- Lines]].

said(File, #{line := Line, column := Column, kind := Kind, api := Api, deopts := Deopts}) ->
    [message(File, Line, Column, case Kind of
                                     native -> "native";
                                     boxed -> ["boxed: " | lists:join(", ", Api)];
                                     api -> ["calls the API: " | lists:join(", ", Api)]
                                 end),
     [message(File, Line, C, ["hands back if ", condition(Why),
                              [io_lib:format(" (~b times so far)", [N]) || N > 0],
                              [["; ", Remedy] || Remedy =/= none]])
      || {C, Why, Remedy, N} <- Deopts]].

condition("raises: exception") -> "an operation fails";
condition("raises: function_clause") -> "no clause matches";
condition("raises: case_clause") -> "no clause of the case matches";
condition("raises: if_clause") -> "no clause of the if matches";
condition("raises: badmatch") -> "a match fails";
condition("raises: " ++ What) -> ["it raises ", What];
condition(Why) -> Why.

message(File, Line, none, What) -> io_lib:format("~ts:~b: ~ts~n", [File, Line, What]);
message(File, Line, Column, What) -> io_lib:format("~ts:~b:~b: ~ts~n", [File, Line, Column, What]).
