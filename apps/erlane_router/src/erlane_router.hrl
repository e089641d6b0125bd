%% SPDX-License-Identifier: Apache-2.0
%% What the modules of the router share.

%% The language of hello and frames; a node that speaks another one gets plain sends.
-define(VERSION, 1).
-define(GATE, erlane_router_gate).

%% What senders need to know of a node: one persistent term, {erlane_router, Node}. It changes
%% when a lane has crashed, and goes when the application stops.
-record(peer, {node :: node(),
               lanes :: tuple(),      % of pids
               words :: tuple(),      % of atomics, one for each lane
               stats :: tuple(),      % of atomics, one for each lane
               bound :: pos_integer(),
               large :: pos_integer(),
               policy :: block | drop_newest}).

%% The word of a lane: messages in the upper bits, bytes in the lower 36, both of what the lane
%% has accepted and not yet handed to the VM. Small integers up to 8 million messages.
-define(ONE, (1 bsl 36)).
-define(BYTES(Word), ((Word) band (?ONE - 1))).
-define(MESSAGES(Word), ((Word) bsr 36)).
%% In the middle of its array: the cache line is its own.
-define(WORD, 8).
-define(WORDS, 16).

%% What an entry is charged beyond its message, and each destination of a list.
-define(ENTRY, 32).
-define(DEST, 16).

%% The figures of a lane. Written by the lane alone, but for DROPPED (a sender that finds the
%% lane full) and TOLD.
-define(S_STATE, 1).
-define(S_SENT, 2).            % handed to the VM in frames, since the partner is there
-define(S_CONFIRMED, 3).       % of these
-define(S_DELIVERED, 4).       % confirmed by partners that were there before
-define(S_DROPPED, 5).
-define(S_UNCONFIRMED, 6).     % handed to the VM, not confirmed when the partner was lost
-define(S_PLAIN, 7).
-define(S_BATCHES, 8).
-define(S_FLUSH_MESSAGES, 9).
-define(S_FLUSH_BYTES, 10).
-define(S_FLUSH_AGE, 11).
-define(S_FLUSH_IDLE, 12).
-define(S_FLUSH_LARGE, 13).
-define(S_FLUSH_SYNC, 14).
-define(S_TOLD, 15).           % of DROPPED, by senders: what subscribers were told
-define(S_REFUSED, 16).        % of DROPPED: by senders that found the lane full
-define(STATS, 16).
