%% SPDX-License-Identifier: Apache-2.0
%% @doc Loads machine code into companions, in the background: the first call of a native function
%% asks for it, and runs on BEAM meanwhile.
%%
%% One process does this for all, one module after the other, so that a start of many does not take
%% every core for compilers. The first call makes it; code needs no application started, just as it
%% needs none to run on BEAM. What came of it is in a table that this process owns.
-module(erlane_native_load).

-behaviour(gen_server).

-export([want/1, ensure/1, off/2, state/1]).
-export([init/1, handle_call/3, handle_cast/2]).

-type state() :: none | pending | native | {beam, Why :: iolist()}.

-define(SERVER, ?MODULE).
-define(TABLE, ?MODULE).

%% @doc Called by a companion that has no machine code yet, at each call: cheap but for the first.
-spec want(module()) -> ok.
want(Companion) ->
    try ets:member(?TABLE, Companion) of
        true -> ok;
        false -> gen_server:cast(?SERVER, {want, Companion})
    catch
        error:badarg ->
            _ = gen_server:start({local, ?SERVER}, ?MODULE, [], []),
            gen_server:cast(?SERVER, {want, Companion})
    end.

%% @doc Loads at once, unless it was tried before; answers what came of it.
-spec ensure(module()) -> state().
ensure(Companion) -> call({ensure, Companion}).

%% @doc Puts a companion back to BEAM. Code that runs in it now goes on to its next turn.
-spec off(module(), binary()) -> ok.
off(Companion, Binary) -> call({off, Companion, Binary}).

%% @doc What a companion runs on.
-spec state(module()) -> state().
state(Companion) ->
    try ets:lookup(?TABLE, Companion) of
        [{_, State}] -> State;
        [] -> none
    catch
        error:badarg -> none
    end.

call(Request) ->
    case whereis(?SERVER) of
        undefined -> _ = gen_server:start({local, ?SERVER}, ?MODULE, [], []), ok;
        _ -> ok
    end,
    gen_server:call(?SERVER, Request, infinity).

%% @private
-spec init([]) -> {ok, none}.
init([]) ->
    ?TABLE = ets:new(?TABLE, [named_table, protected, {read_concurrency, true}]),
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
                     ets:insert(?TABLE, {Companion, {beam, "switched off"}}),
                     ok;
                 {error, Why} -> {error, Why}
             end,
    {reply, Result, S}.

%% @private
-spec handle_cast(term(), none) -> {noreply, none}.
handle_cast({want, Companion}, S) ->
    case ets:member(?TABLE, Companion) of
        true -> ok;
        false ->
            case load(Companion) of
                {beam, Why} when Why =/= "switched off" ->
                    logger:warning("~ts stays on BEAM: ~ts", [Companion, Why]);
                _ -> ok
            end
    end,
    {noreply, S}.

load(Companion) ->
    case state(Companion) of
        native -> native;
        _ ->
            ets:insert(?TABLE, {Companion, pending}),
            State = try attempt(Companion)
                    catch C:R -> {beam, io_lib:format("~tp: ~tp", [C, R])}
                    end,
            ets:insert(?TABLE, {Companion, State}),
            State
    end.

attempt(Companion) ->
    #{module := Module, text := Packed} = Companion:info(),
    case os:getenv("ERLANE_NATIVE") of
        "0" -> {beam, "switched off"};
        _ ->
            case code:which(Module) of
                cover_compiled -> {beam, "it is compiled for cover"};
                Where -> object(Companion, zlib:uncompress(Packed), Where)
            end
    end.

object(Companion, Text, Where) ->
    Shipped = case Where of
                  [_ | _] -> [filename:join([filename:dirname(filename:dirname(Where)), "priv",
                                             "native"])];
                  _ -> []
              end,
    case erlane_native_clang:object(Text, Shipped) of
        {ok, Path} ->
            case Companion:load(Path) of
                ok -> native;
                %% The process that knew it is gone, the code is not.
                {error, {reload, _}} -> native;
                {error, {_, Why}} -> {beam, io_lib:format("the object does not load: ~ts", [Why])}
            end;
        {error, Why} -> {beam, Why}
    end.
