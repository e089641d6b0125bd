%% SPDX-License-Identifier: Apache-2.0
%% @doc What may be told of a crash. The arguments in a stack and the terms in a reason hold the
%% request, with the credentials of its client, and what the listener was given: keys, tokens.
%% Pure.
-module(erlane_http_crash).

-export([report/2]).

-include("erlane_http.hrl").

%% Deeper than that nothing is told.
-define(DEPTH, 4).
-define(ELEMENTS, 20).
-define(BYTES, 64).

%% @doc Reason and stack, with arities for arguments, without requests, and of bounded size.
-spec report(Reason :: term(), Stack :: list()) -> {term(), list()}.
report(Reason, Stack) ->
    {plain(Reason, ?DEPTH), [frame(Frame) || Frame <- Stack]}.

frame({Module, Function, Args, Info}) when is_list(Args) ->
    {Module, Function, length(Args), where(Info)};
frame({Module, Function, Arity, Info}) ->
    {Module, Function, Arity, where(Info)};
frame(_) ->
    other.

where(Info) -> [Pair || {Key, _} = Pair <- Info, Key =:= file orelse Key =:= line].

plain(Term, _) when is_record(Term, req) -> '#req{}';
plain(Term, _) when is_record(Term, conn) -> '#conn{}';
plain(Term, _) when is_record(Term, srv) -> '#srv{}';
plain(Term, _) when is_record(Term, head) -> '#head{}';
plain(_, 0) -> '...';
plain(Term, Depth) when is_tuple(Term), tuple_size(Term) =< ?ELEMENTS ->
    list_to_tuple([plain(T, Depth - 1) || T <- tuple_to_list(Term)]);
plain(Term, _) when is_tuple(Term); is_map(Term); is_function(Term) -> '...';
plain([_ | _] = Term, Depth) ->
    case io_lib:printable_unicode_list(Term) of
        true -> lists:sublist(Term, ?BYTES);
        false -> list(Term, Depth - 1, ?ELEMENTS)
    end;
plain(Term, _) when is_binary(Term), byte_size(Term) > ?BYTES -> binary:part(Term, 0, ?BYTES);
plain(Term, _) -> Term.

list([First | Rest], Depth, N) when N > 0 -> [plain(First, Depth) | list(Rest, Depth, N - 1)];
list([], _, _) -> [];
list(_, _, _) -> ['...'].
