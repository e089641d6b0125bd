%% SPDX-License-Identifier: Apache-2.0
%% @doc What other nodes publish comes to one of a few processes, the same for all messages of a
%% publisher, which hands it to the lanes. It never waits for a lane, so that its own mailbox
%% stays short: what a full lane has no room for is dropped and counted.
-module(erlane_fanout_intake).

-export([start_link/1, children/0, name/1, entry/2]).

%% The language; what is of another one is left alone.
-define(VERSION, 1).
-define(NAMES, {erlane_fanout_intake_1, erlane_fanout_intake_2, erlane_fanout_intake_3,
                erlane_fanout_intake_4}).

%% @doc Children for the supervisor.
-spec children() -> [supervisor:child_spec()].
children() ->
    [#{id => Name, start => {?MODULE, start_link, [Name]}} || Name <- tuple_to_list(?NAMES)].

-spec start_link(atom()) -> {ok, pid()}.
start_link(Name) ->
    proc_lib:start_link(erlang, apply, [fun() -> init(Name) end, []]).

%% @doc Where all that a process publishes goes.
-spec name(pid()) -> atom().
name(Pid) -> element(1 + erlang:phash2(Pid, tuple_size(?NAMES)), ?NAMES).

%% @doc What goes there.
-spec entry(term(), term()) -> tuple().
entry(Topics, Message) -> {erlane_fanout, ?VERSION, Topics, Message}.

init(Name) ->
    true = register(Name, self()),
    proc_lib:init_ack({ok, self()}),
    loop().

loop() ->
    receive
        {erlane_fanout, ?VERSION, Topics, Message} ->
            %% Other nodes may send anything.
            _ = try erlane_fanout_publish:intake(Topics, Message)
                catch error:_ -> ok
                end,
            loop();
        _ ->
            loop()
    end.
