%% SPDX-License-Identifier: Apache-2.0
%% @doc Conditional requests (RFC 9110, section 13): entity tags, and which of the five headers
%% decides. Pure functions; the caller hands over how to look up a header.
-module(erlane_http_cond).

-export([etag/3, evaluate/3, use_range/2]).

-export_type([validators/0, header/0]).

-type validators() :: #{etag := binary(),
                        %% Seconds since 1970.
                        modified := integer(),
                        %% A file changed this very second may change again in it: then neither
                        %% its time nor a tag made from it tells two contents apart.
                        strong := boolean()}.

-type header() :: fun((binary()) -> binary() | undefined).

%% @doc The entity tag of a file of Size bytes that was changed at Modified (seconds since
%% 1970) and may or may not be trusted as strong.
-spec etag(non_neg_integer(), integer(), Strong :: boolean()) -> binary().
etag(Size, Modified, Strong) ->
    Tag = [$", integer_to_binary(Modified, 16), $-, integer_to_binary(Size, 16), $"],
    case Strong of
        true -> iolist_to_binary(Tag);
        false -> iolist_to_binary(["W/", Tag])
    end.

%% @doc Evaluates the preconditions of a request on something that exists, in the order of
%% section 13.2.2. `not_modified' is 304, `failed' is 412. If-Range is not among them: it is
%% asked when there is a Range and the request proceeds.
-spec evaluate(binary(), header(), validators()) -> proceed | not_modified | failed.
evaluate(Method, Header, Validators) ->
    case if_match(Header, Validators) of
        true -> if_none_match(Method, Header, Validators);
        false -> failed
    end.

if_match(Header, #{etag := Etag} = Validators) ->
    case Header(<<"if-match">>) of
        undefined -> if_unmodified(Header(<<"if-unmodified-since">>), Validators);
        Tags -> is_listed(Tags, Etag, fun strong/1)
    end.

if_unmodified(Text, #{modified := Modified}) ->
    case seconds(Text) of
        none -> true;
        Since -> Modified =< Since
    end.

if_none_match(Method, Header, #{etag := Etag, modified := Modified}) ->
    IsRead = Method =:= <<"GET">> orelse Method =:= <<"HEAD">>,
    case Header(<<"if-none-match">>) of
        undefined when IsRead ->
            case seconds(Header(<<"if-modified-since">>)) of
                none -> proceed;
                Since when Modified =< Since -> not_modified;
                _ -> proceed
            end;
        undefined ->
            proceed;
        Tags ->
            case is_listed(Tags, Etag, fun weak/1) of
                true when IsRead -> not_modified;
                true -> failed;
                false -> proceed
            end
    end.

%% @doc Whether the Range of a request counts: it does unless an If-Range names another state
%% of the file, or one that cannot be told for sure.
-spec use_range(header(), validators()) -> boolean().
use_range(Header, #{etag := Etag, modified := Modified, strong := Strong}) ->
    case Header(<<"if-range">>) of
        undefined -> true;
        <<C, _/binary>> = Tag when C =:= $"; C =:= $W ->
            case tag(Tag) of
                {ok, One, <<>>} -> strong(One) =/= none andalso strong(One) =:= strong(Etag);
                _ -> is_date(Tag, Modified, Strong)
            end;
        Text ->
            is_date(Text, Modified, Strong)
    end.

is_date(Text, Modified, Strong) ->
    Strong andalso seconds(Text) =:= Modified.

%% What two tags are compared by: a weak tag never matches in the strong comparison, and in the
%% weak one its mark does not count (section 8.8.3.2).
strong(<<"W/", _/binary>>) -> none;
strong(Tag) -> Tag.

weak(<<"W/", Tag/binary>>) -> Tag;
weak(Tag) -> Tag.

%% A list that is malformed matches up to its fault.
is_listed(<<"*">>, _Etag, _By) ->
    true;
is_listed(Tags, Etag, By) ->
    case tag(Tags) of
        {ok, Tag, Rest} ->
            (By(Tag) =/= none andalso By(Tag) =:= By(Etag)) orelse is_listed(Rest, Etag, By);
        none -> false
    end.

%% The first tag of a list and what follows its comma.
tag(<<C, Rest/binary>>) when C =:= $,; C =:= $\s; C =:= $\t ->
    tag(Rest);
tag(<<"W/\"", Rest/binary>>) ->
    tag(Rest, <<"W/\"">>);
tag(<<"\"", Rest/binary>>) ->
    tag(Rest, <<"\"">>);
tag(_) ->
    none.

tag(Text, Open) ->
    case binary:split(Text, <<"\"">>) of
        [Opaque, Rest] ->
            case is_end(Rest) of
                true -> {ok, <<Open/binary, Opaque/binary, "\"">>, Rest};
                false -> none
            end;
        [_] -> none
    end.

is_end(<<C, Rest/binary>>) when C =:= $\s; C =:= $\t -> is_end(Rest);
is_end(<<C, _/binary>>) -> C =:= $,;
is_end(<<>>) -> true.

%% A date that cannot be read is as no header at all.
seconds(undefined) ->
    none;
seconds(Text) ->
    case erlane_http_date:parse(Text) of
        {ok, Seconds} -> Seconds;
        error -> none
    end.
