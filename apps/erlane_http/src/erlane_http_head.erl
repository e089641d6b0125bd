%% SPDX-License-Identifier: Apache-2.0
%% @doc Reads the head of a request, strictly (RFC 9112): bytes in, a head out, no process and no
%% socket. Whatever two programs could understand in two ways is refused.
%%
%% One pass over the bytes; fields are sub-binaries of them. When the head is not whole yet, a
%% continuation remembers the last whole line, so that a head that comes byte by byte is not read
%% from its beginning each time.
-module(erlane_http_head).

-export([parse/2, parse/3, trailers/3, limits/0]).

-export_type([limits/0, cont/0, trailers/0, head/0, why/0, status/0]).

-include("erlane_http.hrl").

-type head() :: #head{}.
-type limits() :: #{max_method := pos_integer(),        % bytes, else 501
                    max_target := pos_integer(),        % bytes, else 414
                    max_header := pos_integer(),        % bytes of one line, else 431
                    max_headers_size := pos_integer(),  % of all lines with their ends, else 431
                    max_headers := pos_integer()}.      % lines, else 431
-type status() :: 400 | 414 | 417 | 431 | 501 | 505.
-type why() :: atom().
-type cont() :: start | {line, non_neg_integer()} | #{atom() => term()}.

%% What was found in the fields so far; `size' and `count' are those of the lines.
-record(found, {size = 0 :: non_neg_integer(), count = 0 :: non_neg_integer(),
                host :: binary() | undefined, length :: binary() | undefined,
                coding = [] :: [binary()], connection = [] :: [binary()],
                expect = [] :: [binary()]}).

-opaque trailers() :: {[{binary(), binary()}], #found{}, Seen :: non_neg_integer()}.

-define(TOKEN(C), (C >= $a andalso C =< $z orelse C =:= $- orelse C >= $A andalso C =< $Z
                   orelse C >= $0 andalso C =< $9 orelse C =:= $_ orelse C =:= $.
                   orelse C =:= $! orelse C >= $# andalso C =< $' orelse C =:= $*
                   orelse C =:= $+ orelse C =:= $^ orelse C =:= $` orelse C =:= $|
                   orelse C =:= $~)).
-define(HEX(C), (C >= $0 andalso C =< $9 orelse C >= $a andalso C =< $f
                 orelse C >= $A andalso C =< $F)).
-define(TEXT(C), (C >= 32 andalso C =/= 127 orelse C =:= $\t)).
-define(VERSION_SIZE, 10). % "HTTP/1.1\r\n"
-define(MAX_LENGTH, 16#7fffffffffffffff).

%% @doc The limits that the server has unless told otherwise.
-spec limits() -> limits().
limits() ->
    #{max_method => 32, max_target => 8000, max_header => 8192, max_headers_size => 65536,
      max_headers => 100}.

%% @doc Reads a head from the beginning of Bin; Rest is what follows it.
-spec parse(binary(), limits()) ->
          {ok, head(), Rest :: binary()} | {more, cont()} | {error, status(), why()}.
parse(Bin, Limits) ->
    parse(Bin, Limits, start).

%% @doc Goes on with what {@link parse/2} answered `more' to; Bin is that and what came since.
-spec parse(binary(), limits(), cont()) ->
          {ok, head(), Rest :: binary()} | {more, cont()} | {error, status(), why()}.
parse(<<"\r\n", Bin/binary>>, Limits, Cont) ->
    %% One empty line may come before a request.
    go_on(Bin, Limits, Cont);
parse(<<"\r">>, _, _) -> {more, start};
parse(Bin, Limits, Cont) -> go_on(Bin, Limits, Cont).

go_on(Bin, Limits, start) -> line(Bin, Limits);
go_on(Bin, #{max_method := Method, max_target := Target} = Limits, {line, Seen}) ->
    case newline(Bin, Seen) of
        false when byte_size(Bin) =< Method + Target -> {more, {line, byte_size(Bin)}};
        _ -> line(Bin, Limits)
    end;
go_on(Bin, Limits, #{at := At, seen := Seen, head := Head, acc := Acc, found := Found} = Cont) ->
    case newline(Bin, Seen) of
        true ->
            <<_:At/binary, R/bits>> = Bin,
            fields(R, At, {Limits, Bin, Head}, Acc, Found);
        false ->
            limit(byte_size(Bin) - At, Limits, Found, {more, Cont#{seen := byte_size(Bin)}})
    end.

newline(Bin, Seen) ->
    binary:match(Bin, <<"\n">>, [{scope, {Seen, byte_size(Bin) - Seen}}]) =/= nomatch.

%%
%% The request line. `more' there begins anew: it is one line. R is always what is left of Bin,
%% At where in Bin that which is being read began, N its bytes so far: a binary that is only
%% matched against costs nothing, one that is kept does.
%%

line(<<"GET /", R/bits>> = Bin, L) -> path(R, 1, 4, Bin, <<"GET">>, L);
line(<<"POST /", R/bits>> = Bin, L) -> path(R, 1, 5, Bin, <<"POST">>, L);
line(<<R/bits>> = Bin, L) -> method(R, 0, Bin, L).

method(<<C, R/bits>>, N, Bin, L) when ?TOKEN(C) -> method(R, N + 1, Bin, L);
method(_, N, _, #{max_method := Max}) when N > Max -> {error, 501, long_method};
method(<<$\s, $/, R/bits>>, N, Bin, L) when N > 0 ->
    <<Method:N/binary, _/bits>> = Bin,
    path(R, 1, N + 1, Bin, Method, L);
method(<<$\s, R/bits>>, N, Bin, L) when N > 0 ->
    <<Method:N/binary, _/bits>> = Bin,
    other(R, 0, N + 1, Bin, Method, L);
method(<<>>, _, Bin, _) -> {more, {line, byte_size(Bin)}};
method(_, _, _, _) -> {error, 400, bad_method}.

%% Of a path the percents are looked at; a query is the handler's.
path(<<C, R/bits>>, N, At, Bin, M, L)
  when C > $%, C < 127, C =/= $?; C =:= $!; C =:= $"; C =:= $$ ->
    path(R, N + 1, At, Bin, M, L);
path(<<$\s, R/bits>>, N, At, Bin, M, L) ->
    <<_:At/binary, Path:N/binary, _/bits>> = Bin,
    version(R, N, At + N + 1, #head{method = M, target = Path, path = Path}, Bin, L);
path(<<$?, R/bits>>, N, At, Bin, M, L) -> query(R, 0, N, At, Bin, M, L);
path(<<$%, A, B, R/bits>>, N, At, Bin, M, L) when ?HEX(A), ?HEX(B) ->
    path(R, N + 3, At, Bin, M, L);
path(<<_/bits>>, N, At, Bin, _, L) -> unfinished(N, At + N, Bin, L).

query(<<C, R/bits>>, N, P, At, Bin, M, L) when C > $\s, C < 127, C =/= $# ->
    query(R, N + 1, P, At, Bin, M, L);
query(<<$\s, R/bits>>, N, P, At, Bin, M, L) ->
    Size = P + 1 + N,
    <<_:At/binary, Target:Size/binary, _/bits>> = Bin,
    <<Path:P/binary, _, Query/binary>> = Target,
    version(R, Size, At + Size + 1,
            #head{method = M, target = Target, path = Path, query = Query}, Bin, L);
query(<<_/bits>>, N, P, At, Bin, _, L) -> unfinished(P + 1 + N, At + P + 1 + N, Bin, L).

%% The other three forms: absolute, authority, asterisk.
other(<<C, R/bits>>, N, At, Bin, M, L) when C > $\s, C < 127, C =/= $# ->
    other(R, N + 1, At, Bin, M, L);
other(<<$\s, R/bits>>, N, At, Bin, M, L) when N > 0 ->
    <<_:At/binary, Target:N/binary, _/bits>> = Bin,
    case erlane_http_target:form(M, Target) of
        {ok, Host, Path, Query} ->
            version(R, N, At + N + 1, #head{method = M, target = Target, host = Host,
                                            path = Path, query = Query}, Bin, L);
        error -> {error, 400, bad_target}
    end;
other(<<_/bits>>, N, At, Bin, _, L) -> unfinished(N, At + N, Bin, L).

%% What is at At cannot go on a target, or there is nothing yet.
unfinished(N, _, _, #{max_target := Max}) when N > Max -> {error, 414, long_target};
unfinished(_, At, Bin, _) ->
    case Bin of
        <<_:At/binary>> -> {more, {line, At}};
        <<_:At/binary, $%>> -> {more, {line, At + 1}};
        <<_:At/binary, $%, C>> when ?HEX(C) -> {more, {line, At + 2}};
        _ -> {error, 400, bad_target}
    end.

version(<<"HTTP/1.", D, "\r\n", R/bits>>, N, At, #head{method = M} = Head, Bin,
        #{max_target := Max} = L) when D >= $0, D =< $9 ->
    if
        N > Max -> {error, 414, long_target};
        M =:= <<"CONNECT">> -> {error, 501, connect};
        true -> fields(R, At + ?VERSION_SIZE, {L, Bin, Head#head{version = {1, D - $0}}}, [],
                       #found{})
    end;
version(<<"HTTP/", A, $., B, "\r\n", _/bits>>, _, _, _, _, _)
  when A >= $0, A =< $9, B >= $0, B =< $9 ->
    {error, 505, version};
version(<<_/bits>>, N, At, _, Bin, #{max_target := Max}) ->
    case byte_size(Bin) - At < ?VERSION_SIZE andalso not newline(Bin, At) of
        _ when N > Max -> {error, 414, long_target};
        true -> {more, {line, byte_size(Bin)}};
        false -> {error, 400, bad_version}
    end.

%%
%% Fields. `S' is `{Limits, Bin, Head}', what stays the same until the end; after a chunked body
%% `trailers' is in the place of Head.
%%

fields(<<"\r\n", Rest/bits>>, _, {_, _, trailers}, Acc, _) -> {ok, lists:reverse(Acc), Rest};
fields(<<"\r\n", Rest/bits>>, _, {_, _, Head}, Acc, Found) -> finish(Head, Acc, Found, Rest);
fields(<<>>, At, S, Acc, Found) -> more(At, S, Acc, Found);
fields(<<"\r">>, At, S, Acc, Found) -> more(At, S, Acc, Found);
%% Most fields have one of a few names, written in one way: these are seen at a glance.
fields(<<$A, R/bits>>, At, S, Acc, Found) ->
    case R of
        <<"ccept:", V/bits>> -> blank(V, 7, <<"accept">>, At, S, Acc, Found);
        <<"ccept-Encoding:", V/bits>> -> blank(V, 16, <<"accept-encoding">>, At, S, Acc, Found);
        <<"ccept-Language:", V/bits>> -> blank(V, 16, <<"accept-language">>, At, S, Acc, Found);
        _ -> upper(R, 1, At, S, Acc, Found)
    end;
fields(<<$C, R/bits>>, At, S, Acc, Found) ->
    case R of
        <<"onnection:", V/bits>> -> blank(V, 11, <<"connection">>, At, S, Acc, Found);
        <<"ontent-Length:", V/bits>> -> blank(V, 15, <<"content-length">>, At, S, Acc, Found);
        <<"ontent-Type:", V/bits>> -> blank(V, 13, <<"content-type">>, At, S, Acc, Found);
        <<"ookie:", V/bits>> -> blank(V, 7, <<"cookie">>, At, S, Acc, Found);
        _ -> upper(R, 1, At, S, Acc, Found)
    end;
fields(<<$H, R/bits>>, At, S, Acc, Found) ->
    case R of
        <<"ost:", V/bits>> -> blank(V, 5, <<"host">>, At, S, Acc, Found);
        _ -> upper(R, 1, At, S, Acc, Found)
    end;
fields(<<$U, R/bits>>, At, S, Acc, Found) ->
    case R of
        <<"ser-Agent:", V/bits>> -> blank(V, 11, <<"user-agent">>, At, S, Acc, Found);
        _ -> upper(R, 1, At, S, Acc, Found)
    end;
fields(<<C, _/bits>>, _, _, _, _) when C =:= $\s; C =:= $\t -> {error, 400, folded};
fields(<<C, R/bits>>, At, S, Acc, Found) when C >= $a, C =< $z -> name(R, 1, At, S, Acc, Found);
fields(<<C, R/bits>>, At, S, Acc, Found) when ?TOKEN(C) -> upper(R, 1, At, S, Acc, Found);
fields(_, _, _, _, _) -> {error, 400, bad_name}.

%% While all is in lower case already the name is taken as it is.
name(<<C, R/bits>>, N, At, S, Acc, Found) when C >= $a, C =< $z; C =:= $- ->
    name(R, N + 1, At, S, Acc, Found);
name(<<$:, R/bits>>, N, At, {_, Bin, _} = S, Acc, Found) ->
    <<_:At/binary, Name:N/binary, _/bits>> = Bin,
    blank(R, N + 1, Name, At, S, Acc, Found);
name(<<R/bits>>, N, At, S, Acc, Found) -> upper(R, N, At, S, Acc, Found).

upper(<<C, R/bits>>, N, At, S, Acc, Found) when ?TOKEN(C) -> upper(R, N + 1, At, S, Acc, Found);
upper(<<$:, R/bits>>, N, At, {_, Bin, _} = S, Acc, Found) ->
    <<_:At/binary, Name:N/binary, _/bits>> = Bin,
    blank(R, N + 1, erlane_http_name:lower(Name), At, S, Acc, Found);
upper(<<>>, _, At, S, Acc, Found) -> more(At, S, Acc, Found);
upper(_, _, _, _, _, _) -> {error, 400, bad_name}.

blank(<<C, R/bits>>, N, Name, At, S, Acc, Found) when C =:= $\s; C =:= $\t ->
    blank(R, N + 1, Name, At, S, Acc, Found);
blank(<<R/bits>>, N, Name, At, S, Acc, Found) -> value(R, 0, N, Name, At, S, Acc, Found).

%% I bytes of the value after N of the line. Four bytes at a time, unless one of them is below
%% 32 or is 127.
value(<<W:32, R/bits>>, I, N, Name, At, S, Acc, Found)
  when (W - 16#20202020) band (bnot W) band 16#80808080 =:= 0,
       ((W bxor 16#7f7f7f7f) - 16#01010101) band (bnot (W bxor 16#7f7f7f7f))
           band 16#80808080 =:= 0 ->
    value(R, I + 4, N, Name, At, S, Acc, Found);
value(<<C, R/bits>>, I, N, Name, At, S, Acc, Found) when ?TEXT(C) ->
    value(R, I + 1, N, Name, At, S, Acc, Found);
value(<<"\r\n", R/bits>>, I, N, Name, At, {_, Bin, _} = S, Acc, Found) ->
    Size = trimmed(Bin, At + N, I),
    <<_:At/binary, _:N/binary, Value:Size/binary, _/bits>> = Bin,
    found(R, N + I, Name, Value, At, S, Acc, Found);
value(<<>>, _, _, _, At, S, Acc, Found) -> more(At, S, Acc, Found);
value(<<"\r">>, _, _, _, At, S, Acc, Found) -> more(At, S, Acc, Found);
value(_, _, _, _, _, _, _, _) -> {error, 400, bad_value}.

trimmed(_, _, 0) -> 0;
trimmed(Bin, From, I) ->
    case binary:at(Bin, From + I - 1) of
        C when C =:= $\s; C =:= $\t -> trimmed(Bin, From, I - 1);
        _ -> I
    end.

found(<<_/bits>>, Line, _, _, _, {#{max_header := Max}, _, _}, _, _) when Line > Max ->
    {error, 431, long_header};
found(<<_/bits>>, _, _, _, _, {#{max_headers := Max}, _, _}, _, #found{count = N}) when N >= Max ->
    {error, 431, many_headers};
found(<<_/bits>>, Line, _, _, _, {#{max_headers_size := Max}, _, _}, _, #found{size = Size})
  when Size + Line + 2 > Max ->
    {error, 431, long_headers};
found(<<R/bits>>, Line, Name, Value, At, S, Acc, #found{size = Size, count = N} = Found) ->
    note(R, Name, Value, At + Line + 2, S, [{Name, Value} | Acc],
         Found#found{size = Size + Line + 2, count = N + 1}).

note(<<_/bits>>, <<"host">>, _, _, {_, _, #head{}}, _, #found{host = Host})
  when Host =/= undefined ->
    {error, 400, two_hosts};
note(<<R/bits>>, <<"host">>, Value, At, S, Acc, Found) ->
    fields(R, At, S, Acc, Found#found{host = Value});
note(<<R/bits>>, <<"connection">>, Value, At, S, Acc, #found{connection = Values} = Found) ->
    fields(R, At, S, Acc, Found#found{connection = [Value | Values]});
note(<<_/bits>>, <<"content-length">>, _, _, {_, _, #head{}}, _, #found{length = Length})
  when Length =/= undefined ->
    {error, 400, two_lengths};
note(<<R/bits>>, <<"content-length">>, Value, At, S, Acc, Found) ->
    fields(R, At, S, Acc, Found#found{length = Value});
note(<<R/bits>>, <<"transfer-encoding">>, Value, At, S, Acc, #found{coding = Values} = Found) ->
    fields(R, At, S, Acc, Found#found{coding = [Value | Values]});
note(<<R/bits>>, <<"expect">>, Value, At, S, Acc, #found{expect = Values} = Found) ->
    fields(R, At, S, Acc, Found#found{expect = [Value | Values]});
note(<<R/bits>>, _, _, At, S, Acc, Found) ->
    fields(R, At, S, Acc, Found).

%% The line that begins at At is not whole.
more(At, {Limits, Bin, Head}, Acc, Found) ->
    Left = byte_size(Bin) - At,
    Answer = case Head of
                 trailers -> {more, binary:part(Bin, At, Left), {Acc, Found, Left}};
                 _ -> {more, #{at => At, seen => byte_size(Bin), head => Head, acc => Acc,
                               found => Found}}
             end,
    limit(Left, Limits, Found, Answer).

limit(Left, #{max_header := Max}, _, _) when Left > Max + 2 -> {error, 431, long_header};
limit(Left, #{max_headers_size := Max}, #found{size = Size}, _) when Size + Left > Max + 2 ->
    {error, 431, long_headers};
limit(_, _, _, Answer) -> Answer.

%%
%% The whole head
%%

finish(#head{version = Version} = Head0, Acc, Found, Rest) ->
    #found{connection = Connection, expect = Expect} = Found,
    case {host(Head0, Found), framing(Version, Found)} of
        {{error, _, _} = Error, _} -> Error;
        {_, {error, _, _} = Error} -> Error;
        {Host, Body} ->
            Head = Head0#head{host = Host, body = Body, close = closes(Version, Connection),
                              headers = headers(Head0, Host, lists:reverse(Acc))},
            expect(Version, Expect, Head, Rest)
    end.

host(#head{version = {1, 0}, host = Host}, #found{host = undefined}) -> Host;
host(_, #found{host = undefined}) -> {error, 400, no_host};
host(#head{host = Absolute}, #found{host = Host}) ->
    case erlane_http_target:is_host(Host) of
        true when Absolute =:= <<>> -> Host;
        true -> Absolute;
        false -> {error, 400, bad_host}
    end.

%% The host of an absolute target is the host; the field is not to be believed.
headers(#head{host = <<>>}, _, Headers) -> Headers;
headers(_, Host, Headers) ->
    lists:keystore(<<"host">>, 1, Headers, {<<"host">>, Host}).

framing(_, #found{length = undefined, coding = []}) -> none;
framing(_, #found{length = Length, coding = []}) -> length(Length, 0, 0);
framing({1, 0}, _) -> {error, 400, coding_in_http_1_0};
framing(_, #found{length = undefined, coding = [Coding]}) -> coding(Coding);
framing(_, #found{length = undefined, coding = Codings}) ->
    coding(iolist_to_binary(lists:join($,, lists:reverse(Codings))));
framing(_, _) -> {error, 400, length_and_coding}.

length(<<D, R/bits>>, N, I) when D >= $0, D =< $9, I < 19 -> length(R, N * 10 + D - $0, I + 1);
length(<<>>, 0, I) when I > 0 -> none;
length(<<>>, N, _) when N > 0, N =< ?MAX_LENGTH -> N;
length(_, _, _) -> {error, 400, bad_length}.

coding(<<"chunked">>) -> chunked;
coding(Value) ->
    Names = [erlane_http_name:lower(erlane_http_name:trim(Name))
             || Name <- binary:split(Value, <<",">>, [global])],
    case lists:reverse(Names) of
        [<<"chunked">>] -> chunked;
        [<<"chunked">> | Before] ->
            case lists:member(<<>>, Before) orelse lists:member(<<"chunked">>, Before) of
                true -> {error, 400, bad_coding};
                false -> {error, 501, unknown_coding}
            end;
        _ -> {error, 400, bad_coding}
    end.

closes({1, 0}, Values) ->
    not erlane_http_name:has(<<"keep-alive">>, Values)
        orelse erlane_http_name:has(<<"close">>, Values);
closes(_, []) -> false;
closes(_, [<<"keep-alive">>]) -> false;
closes(_, Values) -> erlane_http_name:has(<<"close">>, Values).

expect(_, [], Head, Rest) -> {ok, Head, Rest};
expect({1, 0}, _, Head, Rest) -> {ok, Head, Rest};
expect(_, [Value], Head, Rest) ->
    case erlane_http_name:lower(Value) of
        <<"100-continue">> -> {ok, Head#head{expect = true}, Rest};
        _ -> {error, 417, unknown_expectation}
    end;
expect(_, _, _, _) ->
    {error, 417, unknown_expectation}.

%%
%% Trailers
%%

%% @doc Reads the fields after a chunked body, with the limits of a head. `more' has the line that
%% is not whole: the bytes to begin with when more have come.
-spec trailers(binary(), limits(), start | trailers()) ->
          {ok, [{binary(), binary()}], Rest :: binary()} | {more, binary(), trailers()}
        | {error, 400 | 431, why()}.
trailers(Bin, Limits, start) -> trailers(Bin, Limits, {[], #found{}, 0});
trailers(Bin, Limits, {Acc, Found, Seen}) ->
    case newline(Bin, Seen) of
        true -> fields(Bin, 0, {Limits, Bin, trailers}, Acc, Found);
        false -> limit(byte_size(Bin), Limits, Found, {more, Bin, {Acc, Found, byte_size(Bin)}})
    end.
