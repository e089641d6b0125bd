%% SPDX-License-Identifier: Apache-2.0
%% @doc The smallest handler: says the same to everybody.
-module(erlane_hello).
-behaviour(erlane_http).

-export([handle/2]).

%% @doc Answers with the text that is the handler's argument.
-spec handle(erlane_http:req(), binary()) -> erlane_http:reply().
handle(_Req, Text) ->
    {200, [{<<"content-type">>, <<"text/plain">>}], Text}.
