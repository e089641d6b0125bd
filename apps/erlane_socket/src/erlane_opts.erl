%% SPDX-License-Identifier: Apache-2.0
%% @doc The option door: every option list of a user passes here.
%%
%% listen/2, connect/2 and check/1 read a list without touching a socket and name
%% the key that is wrong. set/2, apply_opened/3 and get/2 carry options to and
%% from a socket. What is accepted and answered follows gen_tcp's inet backend,
%% whose less known habits are kept:
%%
%%  - a list is applied from its end to its beginning, so of two values of one
%%    key the first stays, and of two watermarks the first drags the second;
%%  - at listen and connect the last value of a key replaces the former ones
%%    (raw options pile up), and kernel's default options are applied last;
%%  - types are checked before anything is applied, numbers are cut to 32 bits;
%%  - of the options that the kernel keeps, a refusal of some is einval and of
%%    others is hidden; reading leaves out what the kernel refuses to tell.
-module(erlane_opts).

-export([listen/2, connect/2, check/1, set/2, apply_opened/3, get/2]).

-export_type([parsed/0, why/0]).

-include("erlane_nif.hrl").

-type parsed() :: erlane_opts_parse:parsed().
%% `unknown' and `badarg' make gen_tcp exit with badarg; the others are the
%% error that the call returns.
-type why() :: erlane_opts_parse:why().

-define(IS_COUNT(N), (is_integer(N) andalso N >= -32768 andalso N =< 32767)).

%% @doc Reads the options of a listen. Family is what the socket gets unless an
%% address or a family atom among the options says otherwise.
-spec listen([term()], erlane_opts_parse:family()) ->
          {ok, parsed()} | {error, {Key :: term(), why()}}.
listen(Opts, Family) ->
    erlane_opts_parse:listen(Opts, Family).

%% @doc Reads the options of a connect to an address of Family. A local address
%% of another family is `eafnosupport'.
-spec connect([term()], erlane_opts_parse:family()) ->
          {ok, parsed()} | {error, {Key :: term(), why()}}.
connect(Opts, Family) ->
    erlane_opts_parse:connect(Opts, Family).

%% @doc Whether all keys and values are good for erlane on any release; `ok', or
%% the first key that is not and why.
-spec check([term()]) -> ok | {error, {Key :: term(), why()}}.
check(Opts) ->
    erlane_opts_parse:check(Opts).

%%% Setting

%% @doc For inet:setopts. Nothing is applied if a key or the type of a value is
%% wrong; `einval' is then the answer, and also when the kernel refuses a value
%% (options applied before that one stay). A term that is not a proper list is
%% an error exception, as from gen_tcp. Of a list that fails on its way, active is
%% not applied.
-spec set(reference(), [term()]) -> ok | {error, einval}.
set(Ref, [{active, Active}]) when is_boolean(Active); Active =:= once; ?IS_COUNT(Active) ->
    erlane_nif:set_active(Ref, Active);
set(Ref, Opts) ->
    case steps([step(Opt) || Opt <- Opts], []) of
        {error, einval} = Error ->
            Error;
        Steps ->
            %% gen_tcp looks for data to deliver after the whole list.
            {Active, Rest} = lists:partition(fun is_active/1, Steps),
            run(Ref, Rest ++ Active)
    end.

%% @doc Applies the parsed options of a socket just opened: `sockopts', all but
%% active, before it is bound; `active' when it is connected or listens.
-spec apply_opened(reference(), [term()], sockopts | active) -> ok | {error, einval}.
apply_opened(Ref, Opts, Phase) ->
    case steps([step(Opt) || Opt <- lists:reverse(Opts)], []) of
        {error, einval} = Error -> Error;
        Steps -> run(Ref, [S || S <- Steps, is_active(S) =:= (Phase =:= active)])
    end.

step({raw, Level, Name, Value}) -> erlane_opts_value:encode(raw, {Level, Name, Value});
step({Key, Value}) when is_atom(Key) -> erlane_opts_value:encode(Key, Value);
step(binary) -> erlane_opts_value:encode(mode, binary);
step(list) -> erlane_opts_value:encode(mode, list);
step(_) -> {error, unknown}.

%% Turns the list around: the last option is applied first.
steps([{error, _} | _], _) -> {error, einval};
steps([Actions | Rest], Acc) -> steps(Rest, Actions ++ Acc);
steps([], Acc) -> Acc.

is_active({active, _}) -> true;
is_active(_) -> false.

run(Ref, Steps) ->
    case is_open(Ref) of
        true -> run_open(Ref, Steps);
        false -> {error, einval}
    end.

run_open(Ref, [Step | Steps]) ->
    case run_step(Ref, Step) of
        ok -> run_open(Ref, Steps);
        {error, _} -> {error, einval}
    end;
run_open(_, []) ->
    ok.

run_step(Ref, {own, Number, Int}) ->
    erlane_nif:setopt(Ref, Number, Int);
run_step(Ref, {high, High, Low, Int}) ->
    drag(Ref, High, Int, Low, fun erlang:min/2);
run_step(Ref, {low, High, Low, Int}) ->
    drag(Ref, Low, Int, High, fun erlang:max/2);
run_step(Ref, {recbuf, Size, Kernel}) ->
    %% gen_tcp takes the size asked for, whatever the kernel makes of it.
    _ = erlane_nif:setopt(Ref, ?OPT_RECBUF, Size),
    run_step(Ref, Kernel);
run_step(Ref, {active, Active}) ->
    erlane_nif:set_active(Ref, Active);
run_step(Ref, {kernel, Level, Name, Value, Strict}) ->
    case setsockopt(Ref, Level, Name, Value, erlane_opts_kernel:constant(tos)) of
        ok -> ok;
        {error, _} when Strict =:= lenient -> ok;
        {error, _} = Error -> Error
    end;
run_step(_, fail) ->
    {error, einval}.

%% A high watermark below the low one takes that down with it, and the reverse.
drag(Ref, Number, Int, Other, Choose) ->
    case erlane_nif:getopt(Ref, Other) of
        {ok, Old} ->
            case Choose(Old, Int) of
                Old -> erlane_nif:setopt(Ref, Number, Int);
                New ->
                    _ = erlane_nif:setopt(Ref, Other, New),
                    erlane_nif:setopt(Ref, Number, Int)
            end;
        {error, _} = Error ->
            Error
    end.

%% Linux derives the priority from TOS whenever TOS is set; gen_tcp keeps the
%% two apart.
setsockopt(Ref, Level, Name, Value, {Level, Name}) ->
    {PrioLevel, PrioName} = erlane_opts_kernel:constant(priority),
    Priority = erlane_nif:getsockopt(Ref, PrioLevel, PrioName, 4),
    case {erlane_nif:setsockopt(Ref, Level, Name, Value), Priority} of
        {ok, {ok, Old}} ->
            %% May be refused when it is a priority only root can set.
            _ = erlane_nif:setsockopt(Ref, PrioLevel, PrioName, Old),
            ok;
        {Result, _} ->
            Result
    end;
setsockopt(Ref, Level, Name, Value, _) ->
    erlane_nif:setsockopt(Ref, Level, Name, Value).

is_open(Ref) ->
    case erlane_nif:getopt(Ref, ?OPT_STATE) of
        {ok, ?ST_CLOSED} -> false;
        {ok, _} -> true;
        {error, _} -> false
    end.

%%% Getting

%% @doc For inet:getopts: the values in the order asked for. An unknown key is
%% einval for the whole list; what the kernel refuses to tell is left out. A term
%% that is not a proper list is an error exception.
-spec get(reference(), [term()]) -> {ok, [{term(), term()} | tuple()]} | {error, einval}.
get(Ref, Opts) when is_list(Opts) ->
    case questions(Opts, []) of
        {error, einval} = Error ->
            Error;
        Questions ->
            case is_open(Ref) of
                true -> ask(Ref, Questions, []);
                false -> {error, einval}
            end
    end.

questions([Opt | Opts], Acc) ->
    case question(Opt) of
        {error, _} -> {error, einval};
        Question -> questions(Opts, [Question | Acc])
    end;
questions([], Acc) ->
    lists:reverse(Acc).

question({raw, Level, Name, Size}) ->
    question({raw, {Level, Name, Size}});
question({raw, {Level, Name, Size}}) ->
    case erlane_opts_kernel:request_raw(Level, Name, Size) of
        {error, _} = Error -> Error;
        Request -> {raw, Request}
    end;
question({Key, undefined}) ->
    question(Key);
question(pktoptions) ->
    pktoptions;
question(Key) when Key =:= netns; Key =:= exclusiveaddruse ->
    nothing;
%% gen_tcp cannot read it.
question(line_delimiter) ->
    {error, unknown};
question(Key) when is_atom(Key) ->
    case {erlane_opts_value:number(Key), erlane_opts_kernel:request(Key)} of
        {undefined, undefined} -> {error, unknown};
        {undefined, _} -> {kernel, Key};
        {Number, _} -> {own, Key, Number}
    end;
question(_) ->
    {error, unknown}.

ask(Ref, [Question | Questions], Acc) ->
    case answer(Ref, Question) of
        {ok, Answer} -> ask(Ref, Questions, [Answer | Acc]);
        none -> ask(Ref, Questions, Acc);
        {error, _} -> {error, einval}
    end;
ask(_, [], Acc) ->
    {ok, lists:reverse(Acc)}.

answer(Ref, {own, Key, Number}) ->
    case erlane_nif:getopt(Ref, Number) of
        {ok, Int} -> {ok, {Key, erlane_opts_value:decode(Key, Int)}};
        {error, _} = Error -> Error
    end;
answer(Ref, {kernel, Key}) ->
    case kernel_value(Ref, Key) of
        {ok, Value} -> {ok, {Key, Value}};
        {error, _} -> none
    end;
answer(Ref, {raw, {Level, Name, Size}}) ->
    case erlane_nif:getsockopt(Ref, Level, Name, Size) of
        {ok, Bin} -> {ok, {raw, Level, Name, Bin}};
        {error, _} -> none
    end;
answer(Ref, pktoptions) ->
    case erlane_opts_kernel:pktoptions(family(Ref)) of
        {error, _} = Error ->
            Error;
        {Level, Name, Size} ->
            case erlane_nif:getsockopt(Ref, Level, Name, Size) of
                {ok, Bin} -> {ok, {pktoptions, erlane_opts_kernel:decode_pktoptions(Bin)}};
                {error, _} -> none
            end
    end;
answer(_, nothing) ->
    none.

kernel_value(Ref, Key) ->
    {Level, Name, Size} = erlane_opts_kernel:request(Key),
    case erlane_nif:getsockopt(Ref, Level, Name, Size) of
        {ok, Bin} -> {ok, erlane_opts_kernel:decode(Key, Bin)};
        {error, _} = Error -> Error
    end.

family(Ref) ->
    case erlane_nif:getopt(Ref, ?OPT_FAMILY) of
        {ok, 4} -> inet;
        {ok, 6} -> inet6;
        _ -> local
    end.
