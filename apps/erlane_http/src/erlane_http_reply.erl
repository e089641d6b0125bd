%% SPDX-License-Identifier: Apache-2.0
%% @doc Writes heads of answers. Pure functions, but for the error that a handler's bad field is.
-module(erlane_http_reply).

-export([head/4, fields/1, reason/1, has_body/2]).

-export_type([framing/0, own/0]).

-type framing() :: none | chunked | non_neg_integer().
-type own() :: #{close := boolean(), length := non_neg_integer() | undefined, date := boolean()}.
%% What the handler said in fields that are the server's: to close, the length, its own date.

%% @doc A whole head. Fields is what {@link fields/1} made. `keep' only where it must be said,
%% in an answer to HTTP/1.0.
-spec head(erlane_http:status() | 100..999, iodata(), framing(),
           #{connection := none | keep | close, date := binary() | none}) -> iodata().
head(Status, Fields, Framing, #{connection := Connection, date := Date}) ->
    [line(Status), framing(Framing), connection(Connection), date(Date), Fields, <<"\r\n">>].

line(200) -> <<"HTTP/1.1 200 OK\r\n">>;
line(Status) -> [<<"HTTP/1.1 ">>, integer_to_binary(Status), $\s, reason(Status), <<"\r\n">>].

framing(none) -> <<>>;
framing(chunked) -> <<"Transfer-Encoding: chunked\r\n">>;
framing(Length) -> [<<"Content-Length: ">>, integer_to_binary(Length), <<"\r\n">>].

connection(none) -> <<>>;
connection(keep) -> <<"Connection: keep-alive\r\n">>;
connection(close) -> <<"Connection: close\r\n">>.

date(none) -> <<>>;
date(Text) -> [<<"Date: ">>, Text, <<"\r\n">>].

%% @doc Checks and writes the fields of a handler. Those for framing and the connection are left
%% out and told; a name that is none, or a value with CR, LF or NUL, is an error
%% `{bad_header, Name}'.
-spec fields(erlane_http:headers()) -> {iodata(), own()}.
fields(Headers) -> fields(Headers, [], #{close => false, length => undefined, date => false}).

fields([{Name, Value0} | Rest], Acc, Own) when is_binary(Name) ->
    Value = if is_binary(Value0) -> Value0; true -> iolist_to_binary(Value0) end,
    is_clean(Value) andalso is_name(Name) orelse error({bad_header, Name}),
    case own(Name) of
        false -> fields(Rest, [Acc, Name, <<": ">>, Value, <<"\r\n">>], Own);
        <<"date">> ->
            fields(Rest, [Acc, Name, <<": ">>, Value, <<"\r\n">>], Own#{date := true});
        <<"content-length">> -> fields(Rest, Acc, Own#{length := length_of(Name, Value, Own)});
        <<"connection">> ->
            Close = erlane_http_name:has(<<"close">>, [Value]),
            fields(Rest, Acc, Own#{close := Close orelse maps:get(close, Own)});
        <<"transfer-encoding">> -> fields(Rest, Acc, Own)
    end;
fields([], Acc, Own) ->
    {Acc, Own};
fields([Other | _], _, _) ->
    error({bad_header, Other}).

%% Two that differ are a mistake: neither is more likely to be right.
length_of(Name, Value, #{length := Before}) ->
    case re:run(Value, "^[0-9]{1,18}\\z", [{capture, none}]) of
        match ->
            Length = binary_to_integer(Value),
            Before =:= undefined orelse Before =:= Length orelse error({bad_header, Name}),
            Length;
        nomatch -> error({bad_header, Name})
    end.

%% Only names of these sizes can be ours; to make a name small is the dearest thing here.
own(Name) when byte_size(Name) =:= 4; byte_size(Name) =:= 10; byte_size(Name) =:= 14;
               byte_size(Name) =:= 17 ->
    case erlane_http_name:lower(Name) of
        Own when Own =:= <<"date">>; Own =:= <<"content-length">>; Own =:= <<"connection">>;
                 Own =:= <<"transfer-encoding">> -> Own;
        _ -> false
    end;
own(_) -> false.

is_clean(<<C, Rest/binary>>) when C >= 32 -> is_clean(Rest);
is_clean(<<C, _/binary>>) when C =:= $\r; C =:= $\n; C =:= 0 -> false;
is_clean(<<_, Rest/binary>>) -> is_clean(Rest);
is_clean(<<>>) -> true.

is_name(<<>>) -> false;
is_name(Name) -> is_token(Name).

is_token(<<C, Rest/binary>>)
  when C >= $a, C =< $z; C =:= $-; C >= $A, C =< $Z; C >= $0, C =< $9; C =:= $_; C =:= $.;
       C =:= $!; C >= $#, C =< $'; C =:= $*; C =:= $+; C =:= $^; C =:= $`; C =:= $|; C =:= $~ ->
    is_token(Rest);
is_token(<<>>) -> true;
is_token(_) -> false.

%% @doc Whether an answer of this status to a request of this method has a body.
-spec has_body(Method :: binary(), 100..999) -> boolean().
has_body(<<"HEAD">>, _) -> false;
has_body(_, Status) -> Status >= 200 andalso Status =/= 204 andalso Status =/= 304.

%% @doc The reason phrase; empty for a status that nobody has registered.
-spec reason(100..999) -> binary().
reason(100) -> <<"Continue">>;
reason(101) -> <<"Switching Protocols">>;
reason(200) -> <<"OK">>;
reason(201) -> <<"Created">>;
reason(202) -> <<"Accepted">>;
reason(203) -> <<"Non-Authoritative Information">>;
reason(204) -> <<"No Content">>;
reason(205) -> <<"Reset Content">>;
reason(206) -> <<"Partial Content">>;
reason(207) -> <<"Multi-Status">>;
reason(300) -> <<"Multiple Choices">>;
reason(301) -> <<"Moved Permanently">>;
reason(302) -> <<"Found">>;
reason(303) -> <<"See Other">>;
reason(304) -> <<"Not Modified">>;
reason(307) -> <<"Temporary Redirect">>;
reason(308) -> <<"Permanent Redirect">>;
reason(400) -> <<"Bad Request">>;
reason(401) -> <<"Unauthorized">>;
reason(402) -> <<"Payment Required">>;
reason(403) -> <<"Forbidden">>;
reason(404) -> <<"Not Found">>;
reason(405) -> <<"Method Not Allowed">>;
reason(406) -> <<"Not Acceptable">>;
reason(407) -> <<"Proxy Authentication Required">>;
reason(408) -> <<"Request Timeout">>;
reason(409) -> <<"Conflict">>;
reason(410) -> <<"Gone">>;
reason(411) -> <<"Length Required">>;
reason(412) -> <<"Precondition Failed">>;
reason(413) -> <<"Content Too Large">>;
reason(414) -> <<"URI Too Long">>;
reason(415) -> <<"Unsupported Media Type">>;
reason(416) -> <<"Range Not Satisfiable">>;
reason(417) -> <<"Expectation Failed">>;
reason(421) -> <<"Misdirected Request">>;
reason(422) -> <<"Unprocessable Content">>;
reason(423) -> <<"Locked">>;
reason(426) -> <<"Upgrade Required">>;
reason(428) -> <<"Precondition Required">>;
reason(429) -> <<"Too Many Requests">>;
reason(431) -> <<"Request Header Fields Too Large">>;
reason(451) -> <<"Unavailable For Legal Reasons">>;
reason(500) -> <<"Internal Server Error">>;
reason(501) -> <<"Not Implemented">>;
reason(502) -> <<"Bad Gateway">>;
reason(503) -> <<"Service Unavailable">>;
reason(504) -> <<"Gateway Timeout">>;
reason(505) -> <<"HTTP Version Not Supported">>;
reason(507) -> <<"Insufficient Storage">>;
reason(_) -> <<>>.
