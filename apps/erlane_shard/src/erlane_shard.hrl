%% SPDX-License-Identifier: Apache-2.0
%% What a set of shards is for those who send to it: one persistent term, put anew when a shard
%% was replaced or slots have moved.

%% A key has one of these for good: erlane_shard_map.
-define(SLOTS, 256).

-record(set, {name :: atom(),
              module :: module(),
              bound :: pos_integer(),
              %% The schedulers that the number of shards follows, none with a fixed number.
              online :: pos_integer() | none,
              %% Names one placement of the slots.
              epoch :: reference(),
              %% Each shard with the name of the sender's credit there, new in each epoch.
              shards :: [{pid(), Credit :: integer()}],
              slots :: tuple()}).        % of {pid(), Credit, Slot :: atom()}
