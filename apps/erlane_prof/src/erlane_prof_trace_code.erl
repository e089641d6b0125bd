%% SPDX-License-Identifier: Apache-2.0
%% @doc What is asked of the code of a module that was traced: where its functions begin, and in
%% which of them a process can wait for a message. Pure.
%%
%% A trace says only that a process was taken off its scheduler. If that was in a function which
%% has a `receive', it waited; else it had to make room for others.
-module(erlane_prof_trace_code).

-export([read/1]).

-export_type([about/0]).

-type about() :: #{line := non_neg_integer(), waits := boolean()}.

-define(INTEGER, 1).
-define(ATOM, 2).

%% @doc The functions of a module, of its object code; none if that is not to be read, such as
%% that of a release that our compiler does not know.
-spec read(binary()) -> #{{atom(), arity()} => about()}.
read(Beam) ->
    try
        {beam_file, _, _, _, _, Functions} = beam_disasm:file(Beam),
        Lines = lines(Beam),
        maps:from_list([{{Name, Arity}, #{line => line(Code, Lines), waits => waits(Code)}}
                        || {function, Name, Arity, _, Code} <- Functions])
    catch
        %% It may have instructions of the future.
        _:_ -> #{}
    end.

waits(Code) ->
    lists:any(fun({wait, _}) -> true;
                 ({wait_timeout, _, _}) -> true;
                 ({loop_rec, _, _}) -> true;
                 (_) -> false
              end, Code).

%% That of its head comes before anything else. Newer releases have looked it up.
line([{line, [{location, _File, Line} | _]} | _], _Lines) -> Line;
line([{line, N} | _], Lines) when is_integer(N) -> maps:get(N, Lines, 0);
line([{func_info, _, _, _} | _], _Lines) -> 0;
line([_ | Code], Lines) -> line(Code, Lines);
line([], _Lines) -> 0.

%% The numbers of a module's lines, in the order in which its code names them.
lines(Beam) ->
    case beam_lib:chunks(Beam, ["Line"], [allow_missing_chunks]) of
        {ok, {_, [{"Line", <<_Version:32, _Flags:32, _:32, Count:32, _:32, Data/binary>>}]}} ->
            lines(Data, 1, Count, #{});
        _ -> #{}
    end.

lines(_Data, N, Count, Lines) when N > Count -> Lines;
lines(Data, N, Count, Lines) ->
    case compact(Data) of
        {?INTEGER, Line, Rest} -> lines(Rest, N + 1, Count, Lines#{N => Line});
        %% From here on it is another file.
        {?ATOM, _, Rest} -> lines(Rest, N, Count, Lines)
    end.

compact(<<N:4, 0:1, Tag:3, Rest/binary>>) -> {Tag, N, Rest};
compact(<<High:3, 1:2, Tag:3, Low, Rest/binary>>) -> {Tag, High bsl 8 bor Low, Rest};
compact(<<Size:3, 3:2, Tag:3, Rest/binary>>) when Size < 7 ->
    Bits = 8 * (Size + 2),
    <<N:Bits, More/binary>> = Rest,
    {Tag, N, More}.
