%% SPDX-License-Identifier: Apache-2.0
%% @doc Loads machine code into companions, in the background: the first call of a native function
%% asks for it, and runs on BEAM meanwhile.
%%
%% One process does this for all, one module after the other, so that a start of many does not take
%% every core for compilers. The first call makes it; code needs no application started, just as it
%% needs none to run on BEAM. What came of it is in a table that this process owns, with what
%% modules were before they were made native at run time.
-module(erlane_native_load).

-behaviour(gen_server).

-export([want/1, ensure/1, off/2, state/1, storm/2, difference/2, differences/1]).
-export([swap/1, swapped/1, back/1]).
-export([init/1, handle_call/3, handle_cast/2]).

-export_type([state/0, swap/0]).

-type state() :: none | pending | native | {beam, Why :: iolist()}.
-type swap() :: #{module := module(), file := file:filename(), old := binary(), new := binary(),
                  companion := module(), code := binary(), sticky := boolean()}.
%% `old' and `new' are object code of the module, `code' that of its companion.

-define(SERVER, ?MODULE).
-define(TABLE, ?MODULE).
-define(SWITCHED_OFF, "switched off").

%% @doc Called by a companion that has no machine code yet, at each call: cheap but for the first.
-spec want(module()) -> ok.
want(Companion) ->
    %% The row is the caller's, not the server's: that may be busy with another module for seconds,
    %% in which each call would send one more message.
    try ets:member(?TABLE, Companion) orelse not ets:insert_new(?TABLE, {Companion, queued}) of
        true -> ok;
        false -> gen_server:cast(?SERVER, {want, Companion})
    catch
        error:badarg -> cast({want, Companion})
    end.

%% @doc Loads at once, unless it was tried before; answers what came of it.
-spec ensure(module()) -> state().
ensure(Companion) -> call({ensure, Companion}).

%% @doc Puts a companion back to BEAM. Code that runs in it now goes on to its next turn.
-spec off(module(), binary()) -> ok | {error, term()}.
off(Companion, Binary) -> call({off, Companion, Binary}).

%% @doc What a companion runs on.
-spec state(module()) -> state().
state(Companion) ->
    case look(Companion, none) of
        queued -> pending;
        State -> State
    end.

%% @doc Called once by a function that was put back to BEAM; see erlane_native_meter.
-spec storm(module(), non_neg_integer()) -> ok.
storm(Companion, Unit) -> cast({storm, Companion, Unit}).

%% @doc Machine code gave another answer than BEAM: kinds of the arguments, and of both answers.
-spec difference({module(), non_neg_integer()}, {iodata(), iodata(), iodata()}) -> ok.
difference(Unit, What) ->
    start(),
    case ets:update_counter(?TABLE, {difference, Unit}, 1, {{difference, Unit}, 0}) of
        1 -> cast({difference, Unit, What});
        _ -> ok
    end.

%% @doc How many there were.
-spec differences({module(), non_neg_integer()}) -> non_neg_integer().
differences(Unit) -> look({difference, Unit}, 0).

%% @doc Replaces a module by its native version: the companion and its machine code first, so that
%% no call finds itself without.
-spec swap(swap()) -> ok | {error, string()}.
swap(Swap) -> call({swap, Swap}).

%% @doc What a module was replaced by, unless it was loaded anew since.
-spec swapped(module()) -> {ok, swap()} | error.
swapped(Module) ->
    case look({swap, Module}, none) of
        #{new := New} = Swap ->
            case loaded(Module, New) of
                true -> {ok, Swap};
                false -> error
            end;
        none -> error
    end.

%% @doc Undoes {@link swap/1}.
-spec back(module()) -> ok | {error, string()}.
back(Module) -> call({back, Module}).

look(Key, Default) ->
    try ets:lookup(?TABLE, Key) of
        [{_, Value}] -> Value;
        [] -> Default
    catch
        error:badarg -> Default
    end.

call(Request) ->
    start(),
    gen_server:call(?SERVER, Request, infinity).

cast(Request) ->
    start(),
    gen_server:cast(?SERVER, Request).

start() ->
    case whereis(?SERVER) of
        undefined -> _ = gen_server:start({local, ?SERVER}, ?MODULE, [], []), ok;
        _ -> ok
    end.

%% @private
-spec init([]) -> {ok, none}.
init([]) ->
    %% The process that came first may belong to an application, with which this is not to end.
    true = group_leader(whereis(init), self()),
    ?TABLE = ets:new(?TABLE, [named_table, public, {read_concurrency, true}]),
    {ok, none}.

%% @private
-spec handle_call(term(), gen_server:from(), none) -> {reply, term(), none}.
handle_call({ensure, Companion}, _From, S) ->
    {reply, load(Companion), S};
handle_call({off, Companion, Binary}, _From, S) ->
    %% A module's NIFs leave it only with its code.
    _ = code:soft_purge(Companion),
    Result = case code:load_binary(Companion, atom_to_list(Companion), Binary) of
                 {module, _} ->
                     ets:insert(?TABLE, {Companion, {beam, ?SWITCHED_OFF}}),
                     ok;
                 {error, Why} -> {error, Why}
             end,
    {reply, Result, S};
handle_call({swap, Swap}, _From, S) ->
    {reply, try_swap(Swap), S};
handle_call({back, Module}, _From, S) ->
    {reply, try_back(Module), S}.

%% @private
-spec handle_cast(term(), none) -> {noreply, none}.
handle_cast({want, Companion}, S) ->
    case lists:member(look(Companion, none), [none, queued]) andalso load(Companion) of
        {beam, Why} when Why =/= ?SWITCHED_OFF ->
            logger:warning("erlane_native: ~tp stays on BEAM: ~ts",
                           [maps:get(module, Companion:info()), Why]);
        _ -> ok
    end,
    {noreply, S};
handle_cast({storm, Companion, Unit}, S) ->
    tell(Companion, Unit, fun(Name) ->
        logger:warning("erlane_native: ~ts is put back to BEAM: it handed back more than half of "
                       "its calls at once", [Name])
    end),
    {noreply, S};
handle_cast({difference, {Companion, Unit}, {Args, Native, Beam}}, S) ->
    tell(Companion, Unit, fun(Name) ->
        logger:error("erlane_native: ~ts differs: of ~ts machine code made ~ts, BEAM ~ts; "
                     "BEAM's is the answer", [Name, Args, Native, Beam])
    end),
    {noreply, S}.

%% A companion may be gone by the time that it is talked of.
tell(Companion, Unit, Say) ->
    try
        #{module := Module, units := Units} = Companion:info(),
        {{F, A}, _, _} = lists:keyfind(Unit, 2, Units),
        Say(io_lib:format("~tp:~tp/~b", [Module, F, A]))
    catch
        error:undef -> ok
    end.

load(Companion) ->
    case state(Companion) of
        native -> native;
        _ ->
            ets:insert(?TABLE, {Companion, pending}),
            State = try attempt(Companion)
                    catch C:R -> {beam, io_lib:format("~tp: ~0tP", [C, R, 9])}
                    end,
            ets:insert(?TABLE, {Companion, State}),
            State =:= native andalso erlane_native_state:started(Companion),
            State
    end.

attempt(Companion) ->
    #{module := Module, text := Packed} = Companion:info(),
    case os:getenv("ERLANE_NATIVE") of
        "0" -> {beam, ?SWITCHED_OFF};
        _ ->
            case code:which(Module) of
                cover_compiled -> {beam, "it is compiled for cover"};
                Where -> object(Companion, zlib:uncompress(Packed), Where)
            end
    end.

object(Companion, Text, Where) ->
    case erlane_native_clang:object(Text, erlane_native_clang:shipped(Where)) of
        {ok, Path} ->
            case Companion:load(Path) of
                ok -> native;
                %% The process that knew it is gone, the code is not.
                {error, {reload, _}} -> native;
                {error, {_, Why}} ->
                    {beam, io_lib:format("the machine code ~ts.so cannot be used: ~ts",
                                         [Path, Why])}
            end;
        {error, Why} -> {beam, Why}
    end.

%% Modules that were made native while they were loaded

try_swap(#{module := Module, file := File, old := Old, new := New, companion := Companion,
           code := Code} = Swap) ->
    case {loaded(Module, Old), code:soft_purge(Module)} of
        {false, _} -> {error, "it was loaded anew meanwhile"};
        {_, false} -> {error, "processes run in old code of it"};
        {true, true} ->
            case known(Companion, Code) of
                {error, _} = Error -> Error;
                ok ->
                    case load(Companion) of
                        native ->
                            case replace(Module, File, New, Swap) of
                                ok -> ets:insert(?TABLE, {{swap, Module}, Swap}), ok;
                                Error -> Error
                            end;
                        {beam, Why} ->
                            forget(Companion),
                            {error, lists:flatten(Why)}
                    end
            end
    end.

try_back(Module) ->
    case {swapped(Module), code:soft_purge(Module)} of
        {error, _} -> {error, "it was not made native by load, or loaded anew since"};
        {_, false} -> {error, "processes run in code older than that"};
        {{ok, #{file := File, old := Old, companion := Companion} = Swap}, true} ->
            case replace(Module, File, Old, Swap) of
                ok ->
                    ets:delete(?TABLE, {swap, Module}),
                    %% What still runs in the native version may call it.
                    case erlang:check_old_code(Module) of
                        false -> forget(Companion);
                        true -> ok
                    end;
                Error -> Error
            end
    end.

loaded(Module, Binary) ->
    {ok, {Module, MD5}} = beam_lib:md5(Binary),
    erlang:module_loaded(Module) andalso Module:module_info(md5) =:= MD5.

known(Companion, Code) ->
    case erlang:module_loaded(Companion) of
        true -> ok;
        false ->
            case code:load_binary(Companion, atom_to_list(Companion), Code) of
                {module, _} -> ok;
                {error, Why} -> {error, atom_to_list(Why)}
            end
    end.

replace(Module, File, Binary, #{sticky := Sticky}) ->
    Stuck = Sticky andalso code:is_sticky(Module),
    Stuck andalso code:unstick_mod(Module),
    try code:load_binary(Module, File, Binary) of
        %% The next version that somebody loads needs the place of the one before this.
        {module, _} -> _ = code:soft_purge(Module), ok;
        {error, Why} -> {error, lists:flatten(io_lib:format("it does not load: ~tp", [Why]))}
    after
        Stuck andalso code:stick_mod(Module)
    end.

forget(Companion) ->
    _ = code:purge(Companion),
    _ = code:delete(Companion),
    _ = code:purge(Companion),
    ets:delete(?TABLE, Companion),
    ok.
