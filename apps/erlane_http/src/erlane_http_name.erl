%% SPDX-License-Identifier: Apache-2.0
%% @doc Names of fields in lower case, and lists of tokens. Pure functions.
-module(erlane_http_name).

-export([lower/1, trim/1, has/2, tokens/1]).

%% @doc Letters A to Z in lower case. Names that most requests have are answered by constants,
%% as clients write them.
-spec lower(binary()) -> binary().
lower(Name) -> lower(byte_size(Name), Name).

lower(4, <<"Host">>) -> <<"host">>;
lower(6, <<"Accept">>) -> <<"accept">>;
lower(6, <<"Cookie">>) -> <<"cookie">>;
lower(6, <<"Origin">>) -> <<"origin">>;
lower(7, <<"Referer">>) -> <<"referer">>;
lower(7, <<"Upgrade">>) -> <<"upgrade">>;
lower(10, <<"User-Agent">>) -> <<"user-agent">>;
lower(10, <<"Connection">>) -> <<"connection">>;
lower(12, <<"Content-Type">>) -> <<"content-type">>;
lower(13, <<"Cache-Control">>) -> <<"cache-control">>;
lower(13, <<"Authorization">>) -> <<"authorization">>;
lower(13, <<"If-None-Match">>) -> <<"if-none-match">>;
lower(14, <<"Content-Length">>) -> <<"content-length">>;
lower(14, <<"Accept-Charset">>) -> <<"accept-charset">>;
lower(15, <<"Accept-Encoding">>) -> <<"accept-encoding">>;
lower(15, <<"Accept-Language">>) -> <<"accept-language">>;
lower(15, <<"X-Forwarded-For">>) -> <<"x-forwarded-for">>;
lower(17, <<"Transfer-Encoding">>) -> <<"transfer-encoding">>;
lower(17, <<"If-Modified-Since">>) -> <<"if-modified-since">>;
lower(_, Name) ->
    << <<(if C >= $A, C =< $Z -> C + 32; true -> C end)>> || <<C>> <= Name >>.

%% @doc Without the blanks and tabs at both ends.
-spec trim(binary()) -> binary().
trim(<<C, Rest/binary>>) when C =:= $\s; C =:= $\t -> trim(Rest);
trim(Value) -> trim_end(Value, byte_size(Value)).

trim_end(_, 0) -> <<>>;
trim_end(Value, N) ->
    case binary:at(Value, N - 1) of
        C when C =:= $\s; C =:= $\t -> trim_end(Value, N - 1);
        _ -> binary:part(Value, 0, N)
    end.

%% @doc Whether a token, given in lower case, is in one of these lists, in any case.
-spec has(binary(), [binary()]) -> boolean().
has(_, []) -> false;
has(Token, [Token | _]) -> true;
has(Token, [Value | Values]) -> lists:member(Token, tokens(Value)) orelse has(Token, Values).

%% @doc The members of a list with commas, in lower case; empty ones are left out.
-spec tokens(binary()) -> [binary()].
tokens(Value) ->
    [Token || Part <- binary:split(Value, <<",">>, [global]),
              Token <- [lower(trim(Part))], Token =/= <<>>].
