%% SPDX-License-Identifier: Apache-2.0
%% @doc The stack of a traced process, kept from what the VM tells of calls and returns; and the
%% tree of all stacks there have been. Pure.
%%
%% A tail call makes no event of its own, and its return is that of who was there before. But
%% each call says where it *returns to*, and that is enough. If `b' is on top of `a':
%%
%% - a call that returns to `b' is made by `b', and comes on top;
%% - a call that returns to `a' is a tail call: `b' is over, and replaced;
%% - a call that returns to the end of the process has nothing below it;
%% - one that returns to code which is not traced was made through that code, by `b'; unless `b'
%%   itself returns there: then it is a tail call, as most are.
%%
%% Functions are numbers: above 0 if they are traced, below 0 if not, and 0 is the end of the
%% process. `unknown' is where the function returns that was there when the trace began.
%%
%% Direct recursion is one frame. Its depth is not known: a call of the function by itself is not
%% told from one by the function it calls in its tail, and needs not be.
-module(erlane_prof_trace_stack).

-export([nodes/0, root/2, call/5, return_to/4, seen/4, node_of/2, function_of/1, tree/1]).

-export_type([nodes/0, stack/0, tree_node/0, number_of/0]).

-type number_of() :: integer().
-type tree_node() :: pos_integer().
-type returns() :: number_of() | unknown.
%% Innermost first. The number at the end is how many there are.
-type stack() :: [{number_of(), returns(), tree_node(), pos_integer()}].
%% `none' is how many calls went to a frame that stands for more than itself, because the tree
%% would have grown too deep or too large.
-opaque nodes() :: {Next :: tree_node(), #{term() => tree_node()}, None :: non_neg_integer()}.

%% What these allow is what memory is for: a row of a profile has the whole stack.
-define(NODES, 100000).
-define(DEPTH, 200).
%% Mutual recursion can be as deep as memory allows.
-define(FRAMES, 500000).

%% @doc A tree of nothing.
-spec nodes() -> nodes().
nodes() ->
    {1, #{}, 0}.

%% @doc The root of the stacks of all processes with a label.
-spec root(term(), nodes()) -> {tree_node(), nodes()}.
root(Label, {Next, Map, None} = Nodes) ->
    case Map of
        #{{root, Label} := Root} -> {Root, Nodes};
        #{} ->
            %% There is always a place for one: at worst, that of the first.
            case add({root, Label}, Nodes) of
                full -> {1, {Next, Map, None + 1}};
                Added -> Added
            end
    end.

%% @doc A call of a traced function that will return to `Caller', or to whatever is innermost
%% (`top').
-spec call(number_of(), Caller :: number_of() | top, stack(), Root :: tree_node(), nodes()) ->
          {exact | repaired, stack(), nodes()}.
call(Function, top, [], Root, Nodes) ->
    push(exact, Function, unknown, [], Root, Nodes);
call(Function, top, [{Caller, _, _, _} | _] = Stack, Root, Nodes) ->
    push(exact, Function, Caller, Stack, Root, Nodes);
call(Function, Caller, [{Caller, _, _, _} | _] = Stack, Root, Nodes) ->
    push(exact, Function, Caller, Stack, Root, Nodes);
call(Function, 0, _Stack, Root, Nodes) ->
    push(exact, Function, 0, [], Root, Nodes);
call(Function, Caller, [{Function, Caller, _, _} | _] = Stack, _Root, Nodes) ->
    {exact, Stack, Nodes};
call(Function, Caller, [{_, Caller, _, _} | Stack], Root, Nodes) ->
    push(exact, Function, Caller, Stack, Root, Nodes);
call(Function, Caller, Stack, Root, Nodes) when Caller < 0 ->
    push(exact, Function, Caller, Stack, Root, Nodes);
%% Who was there when the trace began has ended without a word, and told us who is below.
call(Function, Caller, Stack, Root, Nodes) when Stack =:= []; element(2, hd(Stack)) =:= unknown ->
    {_, Below, More} = push(exact, Caller, unknown, [], Root, Nodes),
    push(exact, Function, Caller, Below, Root, More);
%% That should not be. The frames between have ended, or it was called in a way we do not see.
call(Function, Caller, Stack, Root, Nodes) ->
    case back_to(Caller, Stack) of
        [] ->
            {_, Through, More} = push(repaired, Caller, function_of(Stack), Stack, Root, Nodes),
            push(repaired, Function, Caller, Through, Root, More);
        Below ->
            push(repaired, Function, Caller, Below, Root, Nodes)
    end.

%% @doc A return to a function, traced or not. What is above it is over.
-spec return_to(number_of(), stack(), Root :: tree_node(), nodes()) ->
          {exact | repaired, stack(), nodes()}.
return_to(0, _Stack, _Root, Nodes) ->
    {exact, [], Nodes};
return_to(Function, [], _Root, Nodes) when Function < 0 ->
    {exact, [], Nodes};
return_to(Function, Stack, _Root, Nodes) when Function < 0 ->
    %% Frames of code that is not traced are not there, but we know who returns to them.
    case returning_to(Function, Stack) of
        [{_, _, _, _} | Below] -> {exact, Below, Nodes};
        [] when element(2, hd(Stack)) =:= unknown -> {exact, tl(Stack), Nodes};
        [] -> {repaired, tl(Stack), Nodes}
    end;
return_to(Function, Stack, Root, Nodes) ->
    case back_to(Function, Stack) of
        [_ | _] = Below ->
            {exact, Below, Nodes};
        [] when Stack =:= []; element(2, hd(Stack)) =:= unknown ->
            push(exact, Function, unknown, [], Root, Nodes);
        [] ->
            case lists:last(Stack) of
                {_, unknown, _, _} -> push(exact, Function, unknown, [], Root, Nodes);
                _ -> push(repaired, Function, function_of(tl(Stack)), tl(Stack), Root, Nodes)
            end
    end.

%% @doc A function that a process was in when it was seen first.
-spec seen(number_of(), stack(), Root :: tree_node(), nodes()) -> {stack(), nodes()}.
seen(Function, [], Root, Nodes) when Function > 0 ->
    {_, Stack, More} = push(exact, Function, unknown, [], Root, Nodes),
    {Stack, More};
seen(_Function, Stack, _Root, Nodes) ->
    {Stack, Nodes}.

%% @doc Whose time it is now.
-spec node_of(stack(), Root :: tree_node()) -> tree_node().
node_of([{_, _, Node, _} | _], _Root) -> Node;
node_of([], Root) -> Root.

%% @doc The innermost function, or 0.
-spec function_of(stack()) -> number_of().
function_of([{Function, _, _, _} | _]) -> Function;
function_of([]) -> 0.

%% @doc All nodes, each after the one it is below, and how many calls are in a frame of another.
-spec tree(nodes()) ->
          {[{tree_node(), {root, Label :: term()} | {tree_node(), number_of()}}],
           non_neg_integer()}.
tree({_, Map, None}) ->
    {lists:sort([{Node, Key} || {Key, Node} <- maps:to_list(Map)]), None}.

back_to(Function, [{Function, _, _, _} | _] = Stack) -> Stack;
back_to(Function, [_ | Stack]) -> back_to(Function, Stack);
back_to(_Function, []) -> [].

returning_to(Function, [{_, Function, _, _} | _] = Stack) -> Stack;
returning_to(Function, [_ | Stack]) -> returning_to(Function, Stack);
returning_to(_Function, []) -> [].

push(_How, _Function, _Returns, [{_, _, _, Depth} | _] = Stack, _Root, {Next, Map, None})
  when Depth >= ?FRAMES ->
    {repaired, Stack, {Next, Map, None + 1}};
%% A function that calls itself, directly or through code that is not traced, has one node. That
%% it has two entries in the second case is for the returns.
push(How, Function, Function, [{Function, _, _, _} | _] = Stack, _Root, Nodes) ->
    {How, Stack, Nodes};
push(How, Function, Returns, [{Function, _, Node, Depth} | _] = Stack, _Root, Nodes) ->
    {How, [{Function, Returns, Node, Depth + 1} | Stack], Nodes};
push(How, Function, Returns, Stack, Root, Nodes) ->
    {Parent, Depth} = case Stack of
                          [{_, _, Above, D} | _] -> {Above, D + 1};
                          [] -> {Root, 1}
                      end,
    {Node, More} = child(Function, Parent, Depth, Nodes),
    {How, [{Function, Returns, Node, Depth} | Stack], More}.

child(_Function, Parent, Depth, {Next, Map, None}) when Depth > ?DEPTH ->
    {Parent, {Next, Map, None + 1}};
child(Function, Parent, _Depth, {Next, Map, None} = Nodes) ->
    Key = {Parent, Function},
    case Map of
        #{Key := Node} -> {Node, Nodes};
        #{} ->
            case add(Key, Nodes) of
                full -> {Parent, {Next, Map, None + 1}};
                Added -> Added
            end
    end.

add(_Key, {Next, _Map, _None}) when Next > ?NODES -> full;
add(Key, {Next, Map, None}) -> {Next, {Next + 1, Map#{Key => Next}, None}}.
