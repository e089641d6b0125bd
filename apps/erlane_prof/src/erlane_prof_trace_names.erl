%% SPDX-License-Identifier: Apache-2.0
%% @doc Who the processes in a trace are. Runs on the node that is looked at, with
%% erlane_prof_trace.
-module(erlane_prof_trace_names).

-export([key/1, before/1, since/3]).

-export_type([labels/0]).

-type labels() :: #{non_neg_integer() => {binary(), atom()}}.

-define(NAMES_MS, 1000).
-define(KNOWN, 20000).
%% Words that a clerk may use: the dictionary of a process can be of any size.
-define(CLERK_WORDS, 2000000).

%% @doc A process as a trace file has it.
-spec key(pid()) -> non_neg_integer().
key(Pid) ->
    Bytes = term_to_binary(Pid),
    <<Id:32, Serial:32, _:32>> = binary:part(Bytes, byte_size(Bytes), -12),
    Serial bsl 32 bor Id.

%% @doc Who is there, as far as it is told in place. One that runs would have to answer.
-spec before(all | [pid()]) -> labels().
before(Procs) ->
    labels(there(Procs), maps:from_list([{whereis(Name), Name} || Name <- registered()]), #{}).

there(all) -> erlang:processes();
there(Pids) -> Pids.

labels([Pid | Pids], Names, Labels) when map_size(Labels) < ?KNOWN ->
    Label = case Names of
                #{Pid := Name} -> atom_to_binary(Name);
                #{} ->
                    case process_info(Pid, status) of
                        {_, waiting} -> initial(process_info(Pid, initial_call));
                        _ -> <<"[unknown]">>
                    end
            end,
    labels(Pids, Names, Labels#{key(Pid) => {Label, undefined}});
labels(_, _, Labels) ->
    Labels.

initial({_, {M, F, A}}) -> erlane_prof_session:text("~tw:~tw/~w", [M, F, A]);
initial(_) -> <<"[unknown]">>.

%% @doc Those that were there and still are tell themselves who they are, if they do it soon. One
%% that runs may be in a native call, and is asked last. `gone' if the guard ends, to which
%% the caller is linked, with exits trapped.
-spec since(labels(), all | [pid()], Guard :: pid()) -> labels() | gone.
since(Before, Procs, Guard) ->
    {Waiting, Busy} = lists:partition(fun(Pid) ->
                                              process_info(Pid, status) =:= {status, waiting}
                                      end, [Pid || Pid <- lists:sublist(there(Procs), ?KNOWN),
                                                   is_map_key(key(Pid), Before), Pid =/= self()]),
    Ends = erlang:monotonic_time(millisecond) + ?NAMES_MS,
    asked(Waiting ++ Busy, Ends, Guard, Before).

%% One may have a dictionary that is larger than the clerk may be: the next one leaves it out.
asked([], _Ends, _Guard, Labels) ->
    Labels;
asked(Pids, Ends, Guard, Labels) ->
    Self = self(),
    Clerk = spawn_opt(fun() ->
                              _ = [Self ! {who, self(), Pid, erlane_prof_asker:who(Pid)}
                                   || Pid <- Pids]
                      end, [link, {max_heap_size, #{size => ?CLERK_WORDS, kill => true,
                                                    error_logger => false}}]),
    answers(Clerk, Pids, Ends, Guard, Labels).

answers(Clerk, Pids, Ends, Guard, Labels) ->
    receive
        {who, Clerk, Pid, Who} ->
            [Pid | Rest] = Pids,
            answers(Clerk, Rest, Ends, Guard, case Who of
                                                  {<<"[ended]">>, _} -> Labels;
                                                  _ -> Labels#{key(Pid) => Who}
                                              end);
        {'EXIT', Clerk, normal} ->
            Labels;
        {'EXIT', Clerk, _} ->
            asked(lists:nthtail(min(1, length(Pids)), Pids), Ends, Guard, Labels);
        {'EXIT', Guard, _} ->
            gone
    after max(0, Ends - erlang:monotonic_time(millisecond)) ->
        exit(Clerk, kill),
        receive {'EXIT', Clerk, _} -> Labels end
    end.
