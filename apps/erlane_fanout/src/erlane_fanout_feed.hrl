%% SPDX-License-Identifier: Apache-2.0
%% What a lane knows of one filter: erlane_fanout_feed, _slow and _ring.

%% A subscription. `to': where to deliver, a process or a socket; `at': its chunk, or `slow' while
%% it is over its limit, `gone' when it is to be disconnected, or `ring' if it pulls.
-record(member, {to :: term(), pid :: pid(), monitor :: reference(),
                 mode :: erlane_fanout_opts:mode(), limit :: pos_integer() | infinity,
                 policy :: erlane_fanout_opts:policy(), gap_frame :: term(),
                 at :: pos_integer() | slow | gone | ring}).

%% Members that have got the same: all up to `cursor'. When they were looked at last, all had done
%% with `done': until more than the limit has come since then nobody is looked at.
-record(chunk, {class :: term(), cursor :: non_neg_integer(), n :: non_neg_integer(),
                done = 0 :: non_neg_integer(),
                members :: [{erlane_fanout_sub:sub(), term()}]}).

-record(feed, {filter :: erlane_fanout_topic:filter(), lane :: pos_integer(),
               stats :: atomics:atomics_ref(),
               %% The era that began with it: see erlane_fanout_match.
               since :: pos_integer(),
               %% The number with which this node has told others of the filter: see
               %% erlane_fanout_remote.
               joined = none :: none | pos_integer(),
               %% Behind which number subscribers were told last that messages of these nodes may
               %% be missing.
               told = none :: none | {non_neg_integer(), [node()]},
               %% Number of the last message; `recent' has those after `low', newest first.
               head :: non_neg_integer(), low :: non_neg_integer(),
               recent = [] :: [{Bytes :: non_neg_integer(), Message :: term()}],
               members = #{} :: #{erlane_fanout_sub:sub() => #member{}},
               chunks = #{} :: #{pos_integer() => #chunk{}},
               %% In which order they get their turn, and how many are not at the head.
               order = queue:new() :: queue:queue(pos_integer()),
               behind = 0 :: non_neg_integer(), visits = 0 :: non_neg_integer(),
               %% Of each class, those with room.
               open = #{} :: #{term() => [pos_integer()]}, next = 1 :: pos_integer(),
               windows = #{} :: #{pos_integer() => term()},
               %% The messages after a number, up to another one, oldest first; as frames.
               cache = none :: none | {non_neg_integer(), non_neg_integer(), full | head,
                                       [term()], #{term() => term()}},
               slow = none :: none | term(),
               ring = none :: none | term(),
               %% The lane has it among those with something to do.
               active = false :: boolean()}).
