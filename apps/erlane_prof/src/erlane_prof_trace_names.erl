%% SPDX-License-Identifier: Apache-2.0
%% @doc Who the processes and ports in a trace are. Runs on the node that is looked at, with
%% erlane_prof_trace.
-module(erlane_prof_trace_names).

-export([before/2, since/4, ports/1]).

-export_type([labels/0, ports/0]).

-type labels() :: #{erlane_prof_trace_read:who() | unknown => {binary(), atom()}}.
-type ports() :: #{port() => {Registered :: binary() | none, Opened :: binary()}}.

-type key() :: fun((pid()) -> erlane_prof_trace_read:who() | unknown).

-define(NAMES_MS, 1000).
-define(KNOWN, 20000).
%% Words that a clerk may use: the dictionary of a process can be of any size.
-define(CLERK_WORDS, 2000000).

%% @doc Who is there, as far as it is told in place. One that runs would have to answer. `Key'
%% tells of a process what it is in the trace.
-spec before(all | [pid()], key()) -> labels().
before(Procs, Key) ->
    Names = maps:from_list([{whereis(Name), Name} || Name <- registered()]),
    labels(there(Procs), Names, Key, #{}).

there(all) -> erlang:processes();
there(Pids) -> Pids.

labels([Pid | Pids], Names, Key, Labels) when map_size(Labels) < ?KNOWN ->
    Label = case Names of
                #{Pid := Name} -> atom_to_binary(Name);
                #{} ->
                    case process_info(Pid, status) of
                        {_, waiting} -> initial(process_info(Pid, initial_call));
                        _ -> <<"[unknown]">>
                    end
            end,
    labels(Pids, Names, Key, Labels#{Key(Pid) => {Label, undefined}});
labels(_, _, _, Labels) ->
    Labels.

initial({_, {M, F, A}}) -> erlane_prof_session:text("~tw:~tw/~w", [M, F, A]);
initial(_) -> <<"[unknown]">>.

%% @doc Those that were there and still are tell themselves who they are, if they do it soon. One
%% that runs may be in a native call, and is asked last. `gone' if the guard ends, to which
%% the caller is linked, with exits trapped.
-spec since(labels(), all | [pid()], Guard :: pid(), key()) -> labels() | gone.
since(Before, Procs, Guard, Key) ->
    {Waiting, Busy} = lists:partition(fun(Pid) ->
                                              process_info(Pid, status) =:= {status, waiting}
                                      end, [Pid || Pid <- lists:sublist(there(Procs), ?KNOWN),
                                                   is_map_key(Key(Pid), Before), Pid =/= self()]),
    Ends = erlang:monotonic_time(millisecond) + ?NAMES_MS,
    asked(Waiting ++ Busy, Ends, {Guard, Key}, Before).

%% One may have a dictionary that is larger than the clerk may be: the next one leaves it out.
asked([], _Ends, _Known, Labels) ->
    Labels;
asked(Pids, Ends, Known, Labels) ->
    Self = self(),
    Clerk = spawn_opt(fun() ->
                              _ = [Self ! {who, self(), Pid, erlane_prof_asker:who(Pid)}
                                   || Pid <- Pids]
                      end, [link, {max_heap_size, #{size => ?CLERK_WORDS, kill => true,
                                                    error_logger => false}}]),
    answers(Clerk, Pids, Ends, Known, Labels).

answers(Clerk, Pids, Ends, {Guard, Key} = Known, Labels) ->
    receive
        {who, Clerk, Pid, Who} ->
            [Pid | Rest] = Pids,
            answers(Clerk, Rest, Ends, Known, case Who of
                                                  {<<"[ended]">>, _} -> Labels;
                                                  _ -> Labels#{Key(Pid) => Who}
                                              end);
        {'EXIT', Clerk, normal} ->
            Labels;
        {'EXIT', Clerk, _} ->
            asked(lists:nthtail(min(1, length(Pids)), Pids), Ends, Known, Labels);
        {'EXIT', Guard, _} ->
            gone
    after max(0, Ends - erlang:monotonic_time(millisecond)) ->
        exit(Clerk, kill),
        receive {'EXIT', Clerk, _} -> Labels end
    end.

%% @doc The ports that there are, but for some: their registered names, and what they were opened
%% with. A port is asked in place if it does nothing, else by a task of its queue, which may be long
%% in coming: those that do not answer soon have no names.
-spec ports([port()]) -> ports().
ports(Without) ->
    Self = self(),
    Ports = lists:sublist(erlang:ports() -- Without, ?KNOWN),
    {Clerk, Ref} = spawn_monitor(fun() -> _ = [Self ! {self(), P, port(P)} || P <- Ports] end),
    ports(Clerk, Ref, erlang:monotonic_time(millisecond) + ?NAMES_MS, #{}).

ports(Clerk, Ref, Ends, Known) ->
    receive
        {Clerk, _, gone} -> ports(Clerk, Ref, Ends, Known);
        {Clerk, Port, Names} -> ports(Clerk, Ref, Ends, Known#{Port => Names});
        {'DOWN', Ref, process, Clerk, _} -> Known
    after max(0, Ends - erlang:monotonic_time(millisecond)) ->
        exit(Clerk, kill),
        receive {'DOWN', Ref, process, Clerk, _} -> rest(Clerk, Known) end
    end.

rest(Clerk, Known) ->
    receive
        {Clerk, _, gone} -> rest(Clerk, Known);
        {Clerk, Port, Names} -> rest(Clerk, Known#{Port => Names})
    after 0 -> Known
    end.

port(Port) ->
    case {erlang:port_info(Port, name), erlang:port_info(Port, registered_name)} of
        {{name, Opened}, {registered_name, Name}} -> {atom_to_binary(Name), bytes(Opened)};
        {{name, Opened}, _} -> {none, bytes(Opened)};
        _ -> gone
    end.

bytes(Text) ->
    try list_to_binary(Text)
    catch error:badarg -> unicode:characters_to_binary(Text)
    end.
