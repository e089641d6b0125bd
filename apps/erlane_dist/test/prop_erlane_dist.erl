%% SPDX-License-Identifier: Apache-2.0
%% Properties of the settings.
-module(prop_erlane_dist).

-include_lib("proper/include/proper.hrl").

-export([prop_targets/0, prop_options/0]).

%% What a connection gets can be set as it is: the low watermark is not above the high one; what
%% was given is set unless the other watermark forbids it; nothing becomes smaller than both what
%% it was and what we want; and once it is set nothing is left to do.
prop_targets() ->
    ?FORALL({Opts, Is}, {good(), values()},
            begin
                {ok, #{want := Want}} = erlane_dist_opts:check(Opts),
                #{buffer := Buffer, high_watermark := High, low_watermark := Low} = To =
                    erlane_dist_opts:targets(Want, Is),
                conjunction(
                  [{order, Low =< High},
                   {buffer, case Opts of
                                #{buffer := B} -> Buffer =:= B;
                                _ -> Buffer >= 262144 andalso Buffer >= maps:get(buffer, Is)
                            end},
                   {high, case Opts of
                              #{high_watermark := H} -> High =:= H;
                              _ -> High >= maps:get(high_watermark, Is)
                          end},
                   {low, case Opts of
                             #{low_watermark := L} -> Low =:= L;
                             _ -> true
                         end},
                   {stays, erlane_dist_opts:targets(Want, To) =:= To}])
            end).

%% Any map is taken, or refused by the name of a key it has; other terms are refused, too.
prop_options() ->
    ?FORALL(Opts, oneof([?LET(Pairs, list({key(), any()}), maps:from_list(Pairs)), any()]),
            case erlane_dist_opts:check(Opts) of
                {ok, #{want := #{}, nodes := _, dry_run := _}} -> is_map(Opts);
                {error, {bad_option, options}} -> not is_map(Opts);
                {error, {bad_option, Key}} -> is_map_key(Key, Opts)
            end).

key() -> oneof([buffer, delay_send, high_watermark, low_watermark, nodes, dry_run, atom()]).

good() ->
    ?SUCHTHAT(Opts,
              ?LET(Keys, list(oneof([buffer, delay_send, high_watermark, low_watermark])),
                   ?LET(Pairs, [{Key, value(Key)} || Key <- Keys], maps:from_list(Pairs))),
              maps:get(low_watermark, Opts, 0) =< maps:get(high_watermark, Opts, 16#40000000)).

value(delay_send) -> boolean();
value(buffer) -> range(1024, 16#4000000);
value(_) -> range(1, 16#40000000).

values() ->
    ?LET({B, D, {High, Low}},
         {range(1, 1000000), boolean(),
          ?SUCHTHAT({H, L}, {range(0, 3000000), range(0, 3000000)}, L =< H)},
         #{buffer => B, delay_send => D, high_watermark => High, low_watermark => Low}).
