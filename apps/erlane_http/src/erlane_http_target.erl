%% SPDX-License-Identifier: Apache-2.0
%% @doc Request targets: the forms other than a path, hosts, percent-decoding, queries. Pure
%% functions (RFC 9112 section 3.2, RFC 3986).
-module(erlane_http_target).

-export([form/2, is_host/1, segments/1, query/1, decode/1]).

-define(HEX(C), (C >= $0 andalso C =< $9 orelse C >= $a andalso C =< $f
                 orelse C >= $A andalso C =< $F)).

%% @doc Takes a target apart that does not begin with a slash. Only OPTIONS may have `*', only
%% CONNECT an authority.
-spec form(Method :: binary(), Target :: binary()) ->
          {ok, Host :: binary(), Path :: binary(), Query :: binary()} | error.
form(<<"OPTIONS">>, <<"*">>) -> {ok, <<>>, <<"*">>, <<>>};
form(<<"CONNECT">>, Target) -> {ok, <<>>, Target, <<>>};
form(Method, Target) ->
    case Target of
        <<S:7/binary, Rest/binary>> when S =:= <<"http://">> -> absolute(Method, Rest);
        <<S:8/binary, Rest/binary>> when S =:= <<"https://">> -> absolute(Method, Rest);
        _ ->
            case binary:split(Target, <<"://">>) of
                [Scheme, Rest] ->
                    case erlane_http_name:lower(Scheme) of
                        Http when Http =:= <<"http">>; Http =:= <<"https">> ->
                            absolute(Method, Rest);
                        _ -> error
                    end;
                [_] -> error
            end
    end.

absolute(Method, Rest) ->
    Size = authority(Rest, 0),
    <<Host:Size/binary, Tail/binary>> = Rest,
    {Path, Query} = case binary:split(Tail, <<"?">>) of
                        [P, Q] -> {P, Q};
                        [P] -> {P, <<>>}
                    end,
    case is_host(Host) andalso is_path(Path) of
        true when Path =:= <<>>, Tail =:= <<>>, Method =:= <<"OPTIONS">> ->
            {ok, Host, <<"*">>, <<>>};
        true when Path =:= <<>> -> {ok, Host, <<"/">>, Query};
        true -> {ok, Host, Path, Query};
        false -> error
    end.

authority(<<C, Rest/binary>>, N) when C =/= $/, C =/= $? -> authority(Rest, N + 1);
authority(_, N) -> N.

is_path(<<$%, A, B, Rest/binary>>) when ?HEX(A), ?HEX(B) -> is_path(Rest);
is_path(<<$%, _/binary>>) -> false;
is_path(<<_, Rest/binary>>) -> is_path(Rest);
is_path(<<>>) -> true.

%% @doc Whether this is a host, not empty, with or without a port (RFC 3986 section 3.2).
-spec is_host(binary()) -> boolean().
is_host(<<$[, Rest/binary>>) ->
    case binary:split(Rest, <<"]">>) of
        [Address, Port] -> is_ip(Address) andalso (Port =:= <<>> orelse is_colon_port(Port));
        _ -> false
    end;
is_host(<<>>) -> false;
is_host(<<$:, _/binary>>) -> false;
is_host(Host) -> is_name(Host).

is_name(<<C, Rest/binary>>)
  when C >= $a, C =< $z; C >= $0, C =< $9; C >= $A, C =< $Z; C =:= $.; C =:= $-; C =:= $_;
       C =:= $~; C =:= $!; C =:= $$; C =:= $&; C =:= $'; C =:= $(; C =:= $); C =:= $*; C =:= $+;
       C =:= $,; C =:= $;; C =:= $= ->
    is_name(Rest);
is_name(<<$%, A, B, Rest/binary>>) when ?HEX(A), ?HEX(B) -> is_name(Rest);
is_name(<<>>) -> true;
is_name(Rest) -> is_colon_port(Rest).

is_colon_port(<<$:, Digits/binary>>) -> is_port(Digits, 0);
is_colon_port(_) -> false.

is_port(<<D, Rest/binary>>, N) when D >= $0, D =< $9, N =< 6553 ->
    is_port(Rest, N * 10 + D - $0);
is_port(<<>>, N) -> N =< 65535;
is_port(_, _) -> false.

is_ip(Address) ->
    case inet:parse_ipv6strict_address(binary_to_list(Address)) of
        {ok, _} -> binary:match(Address, <<"%">>) =:= nomatch;
        {error, einval} -> is_future(Address)
    end.

%% IPvFuture: "v" hex digits "." and anything of a name.
is_future(<<V, D, Rest/binary>>) when (V =:= $v orelse V =:= $V), ?HEX(D) ->
    case binary:split(Rest, <<".">>) of
        [Hex, Text] when Text =/= <<>> ->
            lists:all(fun(C) -> ?HEX(C) end, binary_to_list(Hex)) andalso
                is_name(binary:replace(Text, <<":">>, <<>>, [global])) andalso
                binary:match(Text, <<"%">>) =:= nomatch;
        _ -> false
    end;
is_future(_) -> false.

%% @doc The segments of a path, decoded one by one.
-spec segments(binary()) -> [binary()].
segments(<<"/">>) -> [];
segments(<<$/, Path/binary>>) ->
    [decode(Segment) || Segment <- binary:split(Path, <<"/">>, [global])];
segments(Other) -> [Other].

%% @doc Decodes percents; one that is followed by no two hex digits stays as it is.
-spec decode(binary()) -> binary().
decode(Text) ->
    case binary:match(Text, <<"%">>) of
        nomatch -> Text;
        _ -> decode(Text, <<>>)
    end.

decode(<<$%, A, B, Rest/binary>>, Acc) when ?HEX(A), ?HEX(B) ->
    decode(Rest, <<Acc/binary, (hex(A)):4, (hex(B)):4>>);
decode(<<C, Rest/binary>>, Acc) -> decode(Rest, <<Acc/binary, C>>);
decode(<<>>, Acc) -> Acc.

hex(C) when C =< $9 -> C - $0;
hex(C) -> (C bor 32) - $a + 10.

%% @doc The pairs of a query or a form (application/x-www-form-urlencoded).
-spec query(binary()) -> [{binary(), binary() | true}].
query(<<>>) -> [];
query(Query) ->
    [pair(binary:split(Part, <<"=">>))
     || Part <- binary:split(Query, <<"&">>, [global]), Part =/= <<>>].

pair([Name, Value]) -> {form_decode(Name), form_decode(Value)};
pair([Name]) -> {form_decode(Name), true}.

form_decode(Text) -> decode(binary:replace(Text, <<"+">>, <<" ">>, [global])).
