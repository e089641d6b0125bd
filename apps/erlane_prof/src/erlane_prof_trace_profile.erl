%% SPDX-License-Identifier: Apache-2.0
%% @doc From the pieces of a trace file to the rows of a profile, where the caller is. Pure, but for
%% the counters in the tree.
-module(erlane_prof_trace_profile).

-export([new/3, piece/2, read/1, finish/1, lost/1, wanted/1, code/4, rows/3, notes/1]).

-export_type([state/0, about/0]).

%% What the traced node tells before the first piece: see erlane_prof_trace_tree. `ended' is when
%% the trace was switched off, `unknown' if it ended otherwise. `format' is that of the bytes: of
%% the VM's file port or of erlane_prof_tracer, which has `lost' so many events. `top' are functions
%% of which it was not asked where they return to, as only these call them. `ports' are there if
%% they were followed. `whole' says why it is not, if that is known there.
-type about() :: #{began := integer(), ended := integer() | unknown,
                   labels := [{erlane_prof_trace_read:who(), erlane_prof_trace_tree:label()}],
                   own := [erlane_prof_trace_read:who()], bytes := non_neg_integer(),
                   ports => [{erlane_prof_trace_read:who(),
                              erlane_prof_trace_tree:port_about()}],
                   format => port | native, lost => non_neg_integer(),
                   whole => true | {false, Why :: term()},
                   top => [{mfa(), Callers :: [mfa()]}]}.
-type pattern() :: module() | {module(), atom(), arity() | '_'}.

-record(state, {about, by, reader, tree, left = whole, read = 0, messages,
                files = #{}, functions = #{}}).

-opaque state() :: #state{}.

%% Modules whose code is asked for.
-define(MODULES, 500).

%% @doc Before the first piece. The patterns are those that were traced; rows can have a number of
%% messages.
-spec new(about(), [pattern()], Messages :: boolean()) -> state().
new(#{labels := Labels} = About, Patterns, Messages) ->
    Known = maps:with([began, own], About),
    Tree = erlane_prof_trace_tree:new(Known#{labels => maps:from_list(Labels),
                                             ports => maps:from_list(maps:get(ports, About, [])),
                                             top => maps:from_list(maps:get(top, About, [])),
                                             traced => traced(Patterns)}),
    By = case About of
             #{format := native} -> erlane_prof_trace_records;
             #{} -> erlane_prof_trace_read
         end,
    #state{about = About, by = By, reader = By:new(), tree = Tree, messages = Messages}.

traced(Patterns) ->
    Modules = maps:from_keys([M || M <- Patterns, is_atom(M)], true),
    Others = [P || {_, _, _} = P <- Patterns],
    fun({M, F, A}) ->
            is_map_key('_', Modules) orelse is_map_key(M, Modules)
                orelse lists:any(fun({M1, F1, A1}) ->
                                         M1 =:= M andalso (F1 =:= F orelse F1 =:= '_')
                                             andalso (A1 =:= A orelse A1 =:= '_')
                                 end, Others)
    end.

%% @doc The next bytes of the file.
-spec piece(binary(), state()) -> state().
piece(Bytes, #state{by = By, reader = Reader, tree = Tree} = S) ->
    {More, Next} = By:feed(Bytes, fun erlane_prof_trace_tree:event/2, Tree, Reader),
    S#state{reader = Next, tree = More, read = S#state.read + byte_size(Bytes)}.

%% @doc How many bytes have been read, of how many.
-spec read(state()) -> #{read := non_neg_integer(), bytes := non_neg_integer()}.
read(#state{read = Read, about = #{bytes := Bytes}}) ->
    #{read => Read, bytes => Bytes}.

%% @doc There are no more pieces. If the file ends within an event, what came after it is not
%% known, and time ends with the last event.
-spec finish(state()) -> state().
finish(#state{by = By, reader = Reader, tree = Tree, about = #{ended := Ended}} = S) ->
    Left = By:finish(Reader),
    End = case Left of
              whole -> Ended;
              _ -> unknown
          end,
    S#state{tree = erlane_prof_trace_tree:finish(End, Tree), left = Left}.

%% @doc There will be no more pieces, though there should be.
-spec lost(state()) -> state().
lost(#state{about = About} = S) ->
    finish(S#state{about = About#{ended := unknown}}).

%% @doc The modules whose code would tell more.
-spec wanted(state()) -> [module()].
wanted(#state{tree = Tree}) ->
    Waits = lists:usort([M || {M, _, _} <- erlane_prof_trace_tree:waited_in(Tree)]),
    Others = lists:usort([M || {M, _, _} <- erlane_prof_trace_tree:called(Tree)]),
    lists:sublist(Waits ++ (Others -- Waits), ?MODULES).

%% @doc The name of a module's source, and its object code.
-spec code(module(), File :: binary(), Beam :: binary() | none, state()) -> state().
code(Module, File, none, #state{files = Files} = S) ->
    S#state{files = Files#{Module => File}};
code(Module, File, Beam, #state{functions = Functions} = S) ->
    Known = erlane_prof_trace_code:read(Beam),
    code(Module, File, none, S#state{functions = Functions#{Module => Known}}).

%% @doc Calls a function for each row. Values are nanoseconds and calls, and messages if asked for.
-spec rows(fun((erlane_prof_profile:row(), Acc) -> Acc), Acc, state()) -> Acc.
rows(Fun0, Acc, #state{tree = Tree, files = Files, functions = Functions} = S) ->
    Fun = case S#state.messages of
              true -> Fun0;
              false -> fun(#{values := [Ns, Calls, _]} = Row, A) ->
                               Fun0(Row#{values := [Ns, Calls]}, A)
                       end
          end,
    Known = fun({M, F, A}, Key, Default) ->
                    case Functions of
                        #{M := #{{F, A} := #{Key := Value}}} -> Value;
                        #{} -> Default
                    end
            end,
    Place = fun({M, _, _} = Mfa) -> {maps:get(M, Files, <<>>), Known(Mfa, line, 0)} end,
    State = fun(Mfa) ->
                    case Known(Mfa, waits, true) of
                        true -> waiting;
                        false -> runnable
                    end
            end,
    erlane_prof_trace_tree:fold(Fun, Acc, #{place => Place, state => State}, Tree).

%% @doc What was cut, repaired or left out, in words.
-spec notes(state()) -> [string()].
notes(#state{tree = Tree, left = Left, about = #{ended := Ended, bytes := Bytes} = About}) ->
    #{events := Events} = Stats = erlane_prof_trace_tree:stats(Tree),
    [f("~b events in ~b bytes, ~ts", [Events, Bytes, by(About)])]
        ++ [f("~b events were dropped, as buffers were full: stacks and times around them are what "
              "the others tell", [Lost]) || #{lost := Lost} <- [About], Lost > 0]
        ++ cut(Left)
        ++ unwritten(maps:get(whole, About, true))
        ++ ["the end of the trace is missing: times are until its last event"
            || Ended =:= unknown, Left =:= whole]
        ++ [f(Text, [N])
            || {Key, Text} <- [{repaired, "~b events did not fit what was known of their process: "
                                "its stack was repaired"},
                               {merged, "~b calls are in the frame of their caller: stacks were "
                                "too deep, or too many"},
                               {unnamed, "~b events were of functions beyond those that are told "
                                "apart"}],
               N <- [maps:get(Key, Stats)], N > 0].

by(#{format := native}) -> "by the native tracer";
by(_) -> "by the VM's file port".

%% A trace that is ended by what happens to it is told to be so.
unwritten({false, {file, Why}}) ->
    [f("the last events could not be written and are lost: ~0tp", [Why])];
unwritten({false, unwritten}) ->
    ["the last events could not be written and are lost: the disk may be full"];
unwritten({false, late}) -> ["the last events were not written in time and are lost"];
unwritten(_) -> [].

cut(whole) -> [];
cut({cut, Bytes}) ->
    [f("the trace is cut: its last ~b bytes are no whole event, and times are until the one before",
       [Bytes])];
cut({damaged, At}) ->
    [f("the trace is damaged at byte ~b: what comes after it is left out", [At])].

f(Format, Args) ->
    lists:flatten(io_lib:format(Format, Args)).
