%% SPDX-License-Identifier: Apache-2.0
%% @doc A subscription's name, and the memory that it shares with its lane.
%%
%% The name is a small integer, so that it costs nothing in a message: lane, block of slots,
%% index in the block, and the slot's generation, which a later subscription in the same slot
%% does not share. Blocks double in size and each has a persistent term of its own: new ones are
%% cheap, and none is ever replaced.
-module(erlane_fanout_sub).

-export([lane/1, block/1, cell/2, ref/1, memory/1, at/1]).
-export([new/1, recover/2, alloc/1, free/2, forget/1]).

-export_type([sub/0, slots/0]).

-include("erlane_fanout.hrl").

-type sub() :: non_neg_integer().

%% A slot that was left is used again as late as can be: who was thrown out may just be about to
%% write there how far it has got.
-record(slots, {first :: non_neg_integer(), free = queue:new() :: queue:queue(sub()),
                %% The block that was made last, and its next slot.
                block :: integer(), next = 0 :: non_neg_integer()}).
-opaque slots() :: #slots{}.

-spec lane(sub()) -> non_neg_integer().
lane(Sub) -> ?BLOCK(Sub) bsr ?BLOCK_BITS.

%% @doc The block with the slot.
-spec block(sub()) -> non_neg_integer().
block(Sub) -> ?BLOCK(Sub).

%% @doc Where one of the slot's cells is in its block.
-spec cell(sub(), pos_integer()) -> pos_integer().
cell(Sub, Cell) -> ?CELL(Sub, Cell).

%% @doc The memory of a slot's block.
-spec ref(sub()) -> atomics:atomics_ref().
ref(Sub) -> persistent_term:get(?MEMORY(?BLOCK(Sub))).

%% @doc The memory of a block.
-spec memory(non_neg_integer()) -> atomics:atomics_ref().
memory(Block) -> persistent_term:get(?MEMORY(Block)).

%% @doc The memory of a living subscription, `none' for one that was and for what is none.
-spec at(term()) -> atomics:atomics_ref() | none.
at(Sub) when is_integer(Sub), Sub > 0, ?INDEX(Sub) < ?SLOTS(?BLOCK(Sub)) ->
    case persistent_term:get(?MEMORY(?BLOCK(Sub)), none) of
        none -> none;
        Ref ->
            case atomics:get(Ref, ?CELL(Sub, ?C_GEN)) of
                Gen when Gen =:= ?GEN(Sub) -> Ref;
                _ -> none
            end
    end;
at(_) -> none.

%% @doc The slots of a lane, none in use.
-spec new(pos_integer()) -> slots().
new(Lane) ->
    First = Lane bsl ?BLOCK_BITS,
    #slots{first = First, block = First - 1, next = ?SLOTS(First - 1)}.

%% @doc The same after a crash: these are in use, what else the blocks have is free.
-spec recover(pos_integer(), [sub()]) -> slots().
recover(Lane, Used) ->
    #slots{first = First} = Slots = new(Lane),
    recover(First, maps:from_keys([Sub bsr ?GEN_BITS || Sub <- Used], true), Slots).

recover(Block, Used, Slots) ->
    case persistent_term:get(?MEMORY(Block), none) of
        none -> Slots;
        Ref ->
            Free = [renewed(Ref, name(Block, I)) || I <- lists:seq(0, ?SLOTS(Block) - 1),
                                                    not is_map_key(name(Block, I) bsr ?GEN_BITS,
                                                                   Used)],
            recover(Block + 1, Used, Slots#slots{free = queue:join(queue:from_list(Free),
                                                                   Slots#slots.free),
                                                 block = Block, next = ?SLOTS(Block)})
    end.

name(Block, Index) -> ((Block bsl ?INDEX_BITS) bor Index) bsl ?GEN_BITS.

%% The slot's next name: the last one is nobody's from now on.
renewed(Ref, Sub) ->
    Cell = ?CELL(Sub, ?C_GEN),
    Gen = ?GEN(atomics:get(Ref, Cell) + 1),
    ok = atomics:put(Ref, Cell, Gen),
    Sub - ?GEN(Sub) + Gen.

%% @doc A slot; its cells but the generation are 0.
-spec alloc(slots()) -> {sub(), slots()}.
alloc(#slots{block = Block, next = Next, first = First} = S)
  when Block >= First, Next < ?SLOTS(Block) ->
    {name(Block, Next), S#slots{next = Next + 1}};
alloc(#slots{block = Block, free = Free} = S) ->
    case queue:out(Free) of
        {{value, Sub}, Rest} ->
            Ref = ref(Sub),
            lists:foreach(fun(C) -> atomics:put(Ref, ?CELL(Sub, C), 0) end,
                          lists:seq(?C_GEN + 1, ?CELLS)),
            {Sub, S#slots{free = Rest}};
        {empty, _} ->
            persistent_term:put(?MEMORY(Block + 1),
                                atomics:new(?SLOTS(Block + 1) * ?CELLS, [{signed, true}])),
            alloc(S#slots{block = Block + 1, next = 0})
    end.

%% @doc Not used any more: its name is invalid from now on.
-spec free(sub(), slots()) -> slots().
free(Sub, #slots{free = Free} = S) ->
    S#slots{free = queue:in(renewed(ref(Sub), Sub), Free)}.

%% @doc Erases the blocks of these lanes.
-spec forget([pos_integer()]) -> ok.
forget(Lanes) ->
    lists:foreach(fun(Block) -> persistent_term:erase(?MEMORY(Block)) end,
                  [(Lane bsl ?BLOCK_BITS) + I || Lane <- Lanes,
                                                 I <- lists:seq(0, (1 bsl ?BLOCK_BITS) - 1)]).
