%% SPDX-License-Identifier: Apache-2.0
%% What producers hold of a consumer. Whoever has it can send; it is a term like any other.
-record(erlane_inbox, {ref :: reference(),
                       key :: pos_integer(),
                       pid :: pid(),
                       keeper :: pid(),
                       words :: atomics:atomics_ref(),
                       count :: pos_integer(),
                       bytes :: pos_integer() | infinity,
                       age :: pos_integer() | infinity,
                       idle :: boolean(),
                       bound :: pos_integer(),
                       policy :: block | drop_newest}).
