%% SPDX-License-Identifier: Apache-2.0
%% What the modules of the fan-out share.

%% What publishers need: one persistent term. It changes when a lane has crashed, and goes when
%% the application stops.
-define(LANES, {erlane_fanout, lanes}).
-record(lanes, {pids :: tuple(),          % of processes
                words :: tuple(),         % of atomics, one for each lane: see erlane_fanout_inbox
                stats :: tuple(),         % of atomics, one for each lane
                wild :: atomics:atomics_ref(),    % see erlane_fanout_match
                config :: erlane_fanout_opts:config()}).

%% Tables, all owned by erlane_fanout_lanes.
-define(ROUTES, erlane_fanout_routes).    % {Filter, Lanes, Blocked, Remote}
-define(COUNTS, erlane_fanout_counts).    % {{Filter, Lane}, Subscriptions}
-define(TRIE, erlane_fanout_trie).        % {[Level], Count}
-define(SUBS, erlane_fanout_subs).        % #row{}
%% {{Ring, First}, Last, Messages}, {{Ring, -First}, Last, Frames}, {{Ring, 0}, Atomics}
-define(RING, erlane_fanout_ring).
-define(RETAIN, erlane_fanout_retain).    % {Topic, Stamp, {message, Message} | none, Bytes}
-define(LINKS, erlane_fanout_links).      % {{Intake, Node}, Link, open | closed, [Lane]}

%% A subscription as it is known beside its lane: what a new lane starts from after a crash.
-record(row, {sub :: erlane_fanout_sub:sub(), lane :: pos_integer(),
              filter :: erlane_fanout_topic:filter(), pid :: pid(),
              opts :: erlane_fanout_opts:sub_opts()}).

%% A row of ?ROUTES.
-define(R_LANES, 2).     % bitmap of lanes with subscriptions
-define(R_BLOCKED, 3).   % bitmap of those in which one with policy block is over its limit
-define(R_REMOTE, 4).    % nodes with subscriptions: {Node, Number, Link}, see erlane_fanout_remote

%% A subscription's name, a small integer: lane 10 bits, block of slots 5, index 24, generation 20.
-define(GEN_BITS, 20).
-define(INDEX_BITS, 24).
-define(BLOCK_BITS, 5).
-define(GEN(Sub), ((Sub) band ((1 bsl ?GEN_BITS) - 1))).
-define(INDEX(Sub), (((Sub) bsr ?GEN_BITS) band ((1 bsl ?INDEX_BITS) - 1))).
%% Lane and block together name the block's memory, a persistent term that is never replaced.
-define(BLOCK(Sub), ((Sub) bsr (?GEN_BITS + ?INDEX_BITS))).
-define(MEMORY(Block), {erlane_fanout, Block}).
%% Slots of a block: each block has twice as many as the one before.
-define(SLOTS(Block), (1024 bsl ((Block) band ((1 bsl ?BLOCK_BITS) - 1)))).
%% Where one of the slot's cells is. All first cells of a block come first, then all second ones:
%% neighbours are served one after the other, and eight of them share a cache line.
-define(CELL(Sub, Cell), (?SLOTS(?BLOCK(Sub)) * ((Cell) - 1) + ?INDEX(Sub) + 1)).
-define(CELLS, 6).
-define(C_GEN, 1).
-define(C_POS, 2).       % last done, or taken
-define(C_FLAG, 3).      % push: tell the lane when done reaches it; pull: its ring = idle, wake me
-define(C_ROW, 4).       % pull: the first number of the row it stands in
-define(C_FEED, 5).      % pull: the ring of its feed
-define(C_TELL, 6).      % pull: tell the lane when the place before it is reached
%% The cells of a ring.
-define(F_HEAD, 2).      % last number in the ring
-define(F_TAIL, 3).      % first number in the ring
-define(F_IDLE, 4).      % how many wait to be woken

%% The figures of a lane, written by the lane but for those of publishers.
-define(S_MESSAGES, 1).      % taken from publishers
-define(S_DELIVERIES, 2).    % batches handed to subscribers
-define(S_DELIVERED, 3).     % messages in them
-define(S_TURNS, 4).
-define(S_WAKES, 5).         % the lane was idle before
-define(S_SLOW, 6).          % times a subscription went over its limit
-define(S_LOST, 7).          % messages in gaps
-define(S_REPLACED, 8).      % of these, by a later one of the same key
-define(S_DISCONNECTED, 9).
-define(S_BLOCKED_US, 10).   % by publishers: how long they waited
-define(S_REFUSED, 11).      % by intakes: the lane was full
-define(S_SUBS, 12).
-define(S_FEEDS, 13).
-define(S_BREAKS, 14).      % notices that messages of another node may be missing
-define(STATS, 16).
