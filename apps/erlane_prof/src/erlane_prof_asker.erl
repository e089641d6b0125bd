%% SPDX-License-Identifier: Apache-2.0
%% @doc Asks processes for their stacks, and who they are. Runs on the node that is looked at, with
%% erlane_prof_sampler.
%%
%% Only a process itself can tell its stack, and one in a native call does not before that ends. So
%% each question has a process of its own, which may be stuck and is not to grow.
-module(erlane_prof_asker).

-export([ask/2, guess/1, cost/0, who/1]).

%% Words an asker may use: the dictionary of a process can be of any size.
-define(ASK_WORDS, 2000000).

%% @doc What it costs on this machine, for all who take part, in nanoseconds: the shortest of some
%% tries. The caller must trap exits.
-spec cost() -> pos_integer().
cost() ->
    Sleeper = spawn_link(fun() -> receive stop -> ok end end),
    Costs = [begin
                 Before = erlang:monotonic_time(nanosecond),
                 Asker = ask(Sleeper, known),
                 receive {answer, Asker, _} -> ok end,
                 receive {'EXIT', Asker, _} -> ok end,
                 erlang:monotonic_time(nanosecond) - Before
             end || _ <- lists:seq(1, 20)],
    Sleeper ! stop,
    max(1, lists:min(Costs)).

%% @doc Asks a process for its stack, and, if that is `unknown', who it is. The answer comes as a
%% message, `{answer, Asker, {Who | known, Stack, Status, Reductions} | gone}', and the end of the
%% asker as another one.
-spec ask(pid(), known | unknown) -> pid().
ask(Pid, Who) ->
    Self = self(),
    spawn_opt(fun() -> Self ! {answer, self(), answer(Pid, Who)} end,
              [link, {priority, high}, {max_heap_size, #{size => ?ASK_WORDS, kill => true,
                                                         error_logger => false}}]).

%% @doc The name of a process that waits, as far as it can be read in place: where it began is not
%% told of one of proc_lib.
-spec guess(pid()) -> binary().
guess(Pid) ->
    case process_info(Pid, [registered_name, initial_call]) of
        [{_, []}, {_, Initial}] -> mfa(Initial);
        [{_, Name}, _] -> atom_to_binary(Name);
        undefined -> <<"[ended]">>
    end.

answer(Pid, Known) ->
    Who = case Known of
              unknown -> who(Pid);
              known -> known
          end,
    case process_info(Pid, [current_stacktrace, status]) of
        [{_, Stack}, {_, Status}] ->
            %% What the question itself cost it is no movement.
            Reds = case Status of
                       waiting -> process_info(Pid, reductions);
                       _ -> undefined
                   end,
            {Who, lists:reverse([frame(F) || F <- Stack]), Status, Reds};
        undefined ->
            gone
    end.

frame({M, F, A, Location}) when is_integer(A) ->
    case Location of
        [{file, File}, {line, Line}] -> {M, F, A, unicode:characters_to_binary(File), Line};
        _ -> {M, F, A, <<>>, 0}
    end;
frame({M, F, Args, Location}) ->
    frame({M, F, length(Args), Location}).

%% @doc Its registered name, or the function it began with, and its application. The process
%% itself is asked.
-spec who(pid()) -> {binary(), atom()}.
who(Pid) ->
    case process_info(Pid, [registered_name, initial_call]) of
        [{_, []}, {_, Initial}] -> {called(Pid, Initial), application(Pid)};
        [{_, Name}, _] -> {atom_to_binary(Name), application(Pid)};
        undefined -> {<<"[ended]">>, undefined}
    end.

called(Pid, {proc_lib, _, _} = Initial) ->
    Keys = ['$initial_call'],
    Noted = try process_info(Pid, [{dictionary, Key} || Key <- Keys]) of
                [{_, {_, _, _} = Mfa}] -> Mfa;
                _ -> Initial
            catch
                error:badarg ->
                    %% Before OTP 26.2 there is only the whole dictionary.
                    case process_info(Pid, dictionary) of
                        {_, All} -> proplists:get_value('$initial_call', All, Initial);
                        undefined -> Initial
                    end
            end,
    mfa(Noted);
called(_Pid, Initial) ->
    mfa(Initial).

mfa({M, F, Args}) when is_list(Args) -> mfa({M, F, length(Args)});
mfa({M, F, A}) -> unicode:characters_to_binary(io_lib:format("~tw:~tw/~w", [M, F, A]));
mfa(_) -> <<"[unknown]">>.

application(Pid) ->
    case application:get_application(Pid) of
        {ok, App} -> App;
        undefined -> undefined
    end.
