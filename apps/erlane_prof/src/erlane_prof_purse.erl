%% SPDX-License-Identifier: Apache-2.0
%% @doc What erlane_prof_sampler may spend: nanoseconds of the schedulers' time, for which it fills
%% while time goes by. Pure, and goes to the node with it.
%%
%% Finding processes and looking at those that sleep may take a third of what has come in, asking
%% those for their stacks a fourth; so there is always something left for those that do something.
-module(erlane_prof_purse).

-export([new/5, left/2, idle/2, can_ask/2, wait/2, cost/1]).
-export([spend/2, spend_idle/2, asked/1, asked_idle/1, spent/1]).

-export_type([purse/0]).

%% Of the time of all schedulers that are online: what there is to begin with, of the whole
%% duration, and what comes with each second. Together it is below one percent. To begin with it
%% may be more if there are so many processes that to find who does something takes more: then it
%% is below two percent.
-define(FIRST_SHARE, 0.002).
-define(WALK_SHARE, 0.01).
-define(SHARE, 0.006).

-record(purse, {began :: integer(), first :: non_neg_integer(), rate :: float(),
                ask_ns :: pos_integer(), spent = 0, idle = 0, asking = 0}).

-opaque purse() :: #purse{}.

%% @doc A purse for so many milliseconds, from now on. To ask a process costs so much, and so much
%% to see all processes once.
-spec new(Now :: integer(), ForMs :: pos_integer(), Online :: pos_integer(),
          AskNs :: pos_integer(), WalkNs :: non_neg_integer()) -> purse().
new(Now, For, Online, AskNs, WalkNs) ->
    Time = Online * For * 1000000,
    #purse{began = Now, first = round(max(?FIRST_SHARE * Time, min(?WALK_SHARE * Time, WalkNs))),
           rate = ?SHARE * Online, ask_ns = AskNs}.

%% @doc What is in it; less than nothing if too much was spent.
-spec left(Now :: integer(), purse()) -> integer().
left(Now, #purse{spent = Spent} = P) -> income(Now, P) - Spent.

%% @doc What is in it for those that sleep.
-spec idle(Now :: integer(), purse()) -> integer().
idle(Now, #purse{idle = Spent} = P) -> income(Now, P) div 3 - Spent.

%% @doc Can one more of those be asked for its stack?
-spec can_ask(Now :: integer(), purse()) -> boolean().
can_ask(Now, #purse{ask_ns = AskNs, asking = Spent} = P) -> income(Now, P) div 4 - Spent > AskNs.

%% @doc How long it takes until it has so much more.
-spec wait(non_neg_integer(), purse()) -> non_neg_integer().
wait(Ns, #purse{rate = Rate}) -> round(Ns / Rate).

%% @doc What it costs to ask a process.
-spec cost(purse()) -> pos_integer().
cost(#purse{ask_ns = AskNs}) -> AskNs.

income(Now, #purse{first = First, rate = Rate, began = Began}) ->
    First + round(Rate * (Now - Began)).

%% @doc So much was spent.
-spec spend(Ns :: integer(), purse()) -> purse().
spend(Ns, #purse{spent = Spent} = P) -> P#purse{spent = Spent + Ns}.

%% @doc For those that sleep. It is part of a tick, for which {@link spend/2} is called.
-spec spend_idle(Ns :: integer(), purse()) -> purse().
spend_idle(Ns, #purse{idle = Spent} = P) -> P#purse{idle = Spent + Ns}.

%% @doc A process was asked.
-spec asked(purse()) -> purse().
asked(#purse{ask_ns = AskNs} = P) -> spend(AskNs, P).

%% @doc That was one that sleeps.
-spec asked_idle(purse()) -> purse().
asked_idle(#purse{ask_ns = AskNs, asking = Spent} = P) -> P#purse{asking = Spent + AskNs}.

%% @doc What was spent altogether.
-spec spent(purse()) -> integer().
spent(#purse{spent = Spent}) -> Spent.
