%% SPDX-License-Identifier: Apache-2.0
%% @doc Calls that have begun and not ended, by process, from what the VM tells: that a function
%% was called, with the function that it will return to, and that a process returned to a
%% function. Pure.
%%
%% The VM does not tell which function has ended. It is the one that was called last of those
%% that return there; what was called after it has been left by an exception. A function that
%% ended in a call of another one has no return of its own: both return to the same place, and end
%% together.
%%
%% A function that calls itself, directly or not, is one call, the outermost.
-module(erlane_prof_open).

-export([new/0, call/5, return/3, drop/2, gone/2, procs/1, count/2]).

-export_type([open/0, ended/0]).

-type code() :: mfa() | undefined.
%% What has ended: the function, where it returned to, when it began.
-type ended() :: {mfa(), Caller :: code(), Began :: integer()}.

%% By process what is open, the innermost first, and how many there are of each function.
-record(open, {procs = #{} :: #{pid() => [ended()]},
               counts = #{} :: #{mfa() => pos_integer()}}).

-opaque open() :: #open{}.

%% @doc Nothing is open.
-spec new() -> open().
new() -> #open{}.

%% @doc A process calls a function at a time. `joined': it was under way, called by itself, when
%% we began to look, and is not counted; `again': it is open in that process already.
-spec call(pid(), mfa(), code(), integer(), open()) -> {open | joined | again, open()}.
call(Pid, F, Caller, Now, #open{procs = Procs, counts = Counts} = O) ->
    Stack = maps:get(Pid, Procs, []),
    case lists:keymember(F, 1, Stack) of
        true -> {again, O};
        false when Caller =:= F -> {joined, O};
        false ->
            N = maps:get(F, Counts, 0),
            {open, O#open{procs = Procs#{Pid => [{F, Caller, Now} | Stack]},
                          counts = Counts#{F => N + 1}}}
    end.

%% @doc A process returns to a function. What has ended by that, the innermost first.
-spec return(pid(), To :: code(), open()) -> {[ended()], open()}.
return(Pid, To, #open{procs = Procs} = O) ->
    case Procs of
        #{Pid := Stack} ->
            case lists:keymember(To, 2, Stack) of
                true ->
                    {Above, Rest} = lists:splitwith(fun({_, C, _}) -> C =/= To end, Stack),
                    {Ended, Left} = lists:splitwith(fun({_, C, _}) -> C =:= To end, Rest),
                    Gone = Above ++ Ended,
                    {Gone, less(Gone, stack(Pid, Left, O))};
                %% Of a call that is not counted.
                false -> {[], O}
            end;
        #{} -> {[], O}
    end.

stack(Pid, [], #open{procs = Procs} = O) -> O#open{procs = maps:remove(Pid, Procs)};
stack(Pid, Stack, #open{procs = Procs} = O) -> O#open{procs = Procs#{Pid => Stack}}.

less(Gone, #open{counts = Counts} = O) ->
    O#open{counts = lists:foldl(fun({F, _, _}, Acc) ->
                                        case Acc of
                                            #{F := 1} -> maps:remove(F, Acc);
                                            #{F := N} -> Acc#{F := N - 1}
                                        end
                                end, Counts, Gone)}.

%% @doc Forgets what is open of a function.
-spec drop(mfa(), open()) -> open().
drop(F, #open{procs = Procs, counts = Counts}) ->
    Left = maps:map(fun(_, Stack) -> lists:keydelete(F, 1, Stack) end, Procs),
    #open{procs = maps:filter(fun(_, Stack) -> Stack =/= [] end, Left),
          counts = maps:remove(F, Counts)}.

%% @doc A process has ended: what it was in.
-spec gone(pid(), open()) -> {[ended()], open()}.
gone(Pid, #open{procs = Procs} = O) ->
    Stack = maps:get(Pid, Procs, []),
    {Stack, less(Stack, stack(Pid, [], O))}.

%% @doc The processes that are in a call.
-spec procs(open()) -> [pid()].
procs(#open{procs = Procs}) -> maps:keys(Procs).

%% @doc How many calls of a function are open.
-spec count(mfa(), open()) -> non_neg_integer().
count(F, #open{counts = Counts}) -> maps:get(F, Counts, 0).
