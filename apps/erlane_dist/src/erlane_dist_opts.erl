%% SPDX-License-Identifier: Apache-2.0
%% @doc The settings: what we want, options checked, and what a connection that has some gets.
%% Pure.
-module(erlane_dist_opts).

-export([defaults/0, keys/0, zdbbl/0, check/1, targets/2, boot_lines/0, why/1]).

-export_type([key/0, values/0, want/0, checked/0]).

-type key() :: buffer | delay_send | high_watermark | low_watermark.
-type values() :: #{key() => non_neg_integer() | boolean()}.
-type want() :: #{key() := {exactly | at_least, pos_integer() | boolean()}}.
-type checked() :: #{want := want(), nodes := all | [new | node()], dry_run := boolean()}.

%% KB, as the flag takes it.
-define(ZDBBL, 32768).
%% Each active connection allocates its buffer; and the driver takes 32 bits.
-define(MAX_BUFFER, 16#4000000).
-define(MIN_BUFFER, 1024).
-define(MAX_WATERMARK, 16#40000000).

%% @doc The options of a tune, with what we take for those that are not given.
-spec defaults() -> #{atom() => term()}.
defaults() ->
    #{buffer => 262144, delay_send => true, high_watermark => 1048576,
      low_watermark => 1048576, nodes => all, dry_run => false}.

%% @doc The keys, in the order in which they are set: the driver lowers the low watermark with
%% the high one, and raises the high one with the low one.
-spec keys() -> [key()].
keys() -> [buffer, delay_send, high_watermark, low_watermark].

%% @doc What `+zdbbl' is to be, in KB.
-spec zdbbl() -> pos_integer().
zdbbl() -> ?ZDBBL.

%% @doc Checks options; the error names the first bad key.
-spec check(term()) -> {ok, checked()} | {error, {bad_option, term()}}.
check(Opts) when is_map(Opts) ->
    case [Key || {Key, Value} <- lists:sort(maps:to_list(Opts)), not good(Key, Value)] of
        [Key | _] -> {error, {bad_option, Key}};
        [] -> watermarks(Opts)
    end;
check(_) ->
    {error, {bad_option, options}}.

good(buffer, N) -> is_integer(N) andalso N >= ?MIN_BUFFER andalso N =< ?MAX_BUFFER;
good(delay_send, Value) -> is_boolean(Value);
good(Key, N) when Key =:= high_watermark; Key =:= low_watermark ->
    is_integer(N) andalso N > 0 andalso N =< ?MAX_WATERMARK;
good(nodes, all) -> true;
good(nodes, Nodes) -> is_list(Nodes) andalso atoms(Nodes);
good(dry_run, Value) -> is_boolean(Value);
good(_, _) -> false.

%% Of a proper list.
atoms([Atom | Rest]) when is_atom(Atom) -> atoms(Rest);
atoms(Rest) -> Rest =:= [].

watermarks(#{high_watermark := High, low_watermark := Low}) when Low > High ->
    {error, {bad_option, low_watermark}};
watermarks(Opts) ->
    #{nodes := Nodes, dry_run := DryRun, high_watermark := High, low_watermark := Low} = All =
        maps:merge(defaults(), Opts),
    Want = maps:from_list([{Key, {case is_map_key(Key, Opts) of
                                      true -> exactly;
                                      false -> at_least
                                  end, maps:get(Key, All)}} || Key <- keys()]),
    %% A low one that is given alone may be above our high one.
    WantHigh = case maps:get(high_watermark, Want) of
                   {at_least, _} -> {at_least, max(High, Low)};
                   Given -> Given
               end,
    {ok, #{want => Want#{high_watermark := WantHigh}, nodes => Nodes, dry_run => DryRun}}.

%% @doc What a connection with these values is to have.
-spec targets(want(), values()) -> values().
targets(Want, Is) ->
    #{high_watermark := High, low_watermark := Low} = Targets =
        maps:map(fun(Key, Wanted) -> target(Wanted, maps:get(Key, Is, undefined)) end, Want),
    Targets#{low_watermark := min(Low, High)}.

target({at_least, N}, Is) when is_integer(N), is_integer(Is) -> max(N, Is);
target({_, Value}, _) -> Value.

%% @doc See {@link erlane_dist:boot_lines/0}.
-spec boot_lines() -> #{vm_args := iodata(), sys_config := iodata()}.
boot_lines() ->
    Values = defaults(),
    Opts = lists:flatten(lists:join(",", [io_lib:format("{~w,~w}", [Key, maps:get(Key, Values)])
                                          || Key <- keys()])),
    #{vm_args => ["+zdbbl ", integer_to_list(?ZDBBL), "\n"],
      sys_config => ["[{kernel,\n"
                     "  [{inet_dist_connect_options,\n"
                     "    [", Opts, "]},\n"
                     "   {inet_dist_listen_options,\n"
                     "    [", Opts, "]}]}].\n"]}.

%% @doc What it costs when a setting is not as we want it.
-spec why(atom()) -> string().
why(buffer) ->
    "one system call reads no more than that many bytes, whatever waits in the kernel; a message "
    "that ends beyond it costs another call";
why(delay_send) ->
    "each message is a system call of its own; with it, all that the connection has to send at "
    "one turn is one call";
why(high_watermark) ->
    "so few bytes may wait in the port before it counts as busy, and delay_send then flushes "
    "that often";
why(low_watermark) ->
    "a busy port goes on only when so little waits, and its work is then done in small pieces";
why(zdbbl) ->
    "with that much waiting for a node, whoever sends to it is suspended; the memory is only "
    "taken while it waits";
why(pad) ->
    "processes send without ever being suspended, so nothing limits the memory of messages that "
    "wait for a slow node";
why(system_monitor) ->
    "a VM has one system monitor before OTP 28, and another process has it: busy events are not "
    "counted unless it forwards them".
