%% SPDX-License-Identifier: Apache-2.0
%% Names of the two tables, known to the rooms that read them and to the registry.
-define(SERIES, erlane_metrics_series).
-define(ORDER, erlane_metrics_order).
