%% SPDX-License-Identifier: Apache-2.0
%% @doc Bytes of the VM's trace file as events. Pure; fed in pieces of any size.
%%
%% The file is a row of `<<0, Size:32, Term:Size/binary>>', where the term is a trace message in
%% the external format. Only what is needed is decoded: names stay bytes, which whoever counts them
%% looks up as they are, so that an event costs no atom, no pid and no tuple of three. They are
%% parts of the piece that was fed: to keep one, copy it.
%%
%% <https://www.erlang.org/doc/apps/erts/erl_ext_dist.html> has the format.
-module(erlane_prof_trace_read).

-export([new/0, feed/4, finish/1, is_name/1, mfa/1, word/1, time/1]).

-export_type([reader/0, event/0, who/0, name/0]).

%% What was fed and is no whole event yet; how many bytes were read before it; and the byte at
%% which there is something that is no event, after which nothing can be told apart.
-opaque reader() :: {Rest :: binary(), Read :: non_neg_integer(), none | non_neg_integer()}.
%% A process or a port of the node that was traced; the number of a port is that of the back end.
-type who() :: non_neg_integer() | {port, non_neg_integer()}.
%% Module, function and arity as they are in the file; `none' is what the VM could not tell.
-type name() :: binary() | none.
%% Times are those of the traced VM's monotonic clock, in nanoseconds. `caller' is where the
%% call returns to, `top' if that was not asked for. `sched' covers what the VM calls in, out,
%% in_exiting and so on. A task of a port, and what a port was opened with, are names of functions
%% of module '[port]', which nobody has: see word/1.
-type event() :: {call, who(), name(), Caller :: name() | top, integer()}
               | {return_to, who(), name(), integer()}
               | {sched, who(), in | out | exited, name(), integer()}
               | {spawned, who(), name(), integer()}
               | {gc, who(), begins | ends, integer()}
               | {sent, who(), integer()} | {received, who(), integer()}
               | {task, who(), begins | ends, name(), integer()}
               | {opened, who(), name(), integer()} | {closed, who(), integer()}
               | {other, who(), integer()}.

%% Nothing that is traced is longer.
-define(MOST, 64 bsl 20).

%% @doc A reader that has read nothing.
-spec new() -> reader().
new() ->
    {<<>>, 0, none}.

%% @doc Calls `Fun(Event, State)' for each event that is complete with these bytes.
-spec feed(binary(), fun((event(), State) -> State), State, reader()) -> {State, reader()}.
feed(Bytes, Fun, State, {Rest, Read, none}) ->
    Whole = case Rest of
                <<>> -> Bytes;
                _ -> <<Rest/binary, Bytes/binary>>
            end,
    records(Whole, Fun, State, Read);
feed(_Bytes, _Fun, State, Reader) ->
    {State, Reader}.

%% @doc What was left when there is no more: bytes of an event that is not whole, or the place in
%% the file after which it is no trace.
-spec finish(reader()) -> whole | {cut, Bytes :: pos_integer()} | {damaged, At :: integer()}.
finish({<<>>, _, none}) -> whole;
finish({Rest, _, none}) -> {cut, byte_size(Rest)};
finish({_, _, At}) -> {damaged, At}.

records(<<0, Size:32, Term:Size/binary, Rest/binary>>, Fun, State, Read) ->
    case event(Term) of
        bad -> {State, {<<>>, Read, Read}};
        Event -> records(Rest, Fun, Fun(Event, State), Read + 5 + Size)
    end;
records(<<0, Size:32, _/binary>> = Rest, _Fun, State, Read) when Size =< ?MOST ->
    {State, {binary:copy(Rest), Read, none}};
records(<<0, Rest/binary>>, _Fun, State, Read) when byte_size(Rest) < 4 ->
    {State, {binary:copy(<<0, Rest/binary>>), Read, none}};
records(<<>>, _Fun, State, Read) ->
    {State, {<<>>, Read, none}};
records(_, _Fun, State, Read) ->
    {State, {<<>>, Read, Read}}.

%%% An event

event(<<131, 104, _, 119, 8, "trace_ts", Rest/binary>>) -> event_of(Rest);
%% Before OTP 26 atoms were written like this.
event(<<131, 104, _, 100, 8:16, "trace_ts", Rest/binary>>) -> event_of(Rest);
event(_) -> bad.

event_of(<<88, 119, L, _:L/binary, Id:32, Serial:32, _:32, Rest/binary>>) ->
    kind(Rest, Serial bsl 32 bor Id);
event_of(<<88, 100, L:16, _:L/binary, Id:32, Serial:32, _:32, Rest/binary>>) ->
    kind(Rest, Serial bsl 32 bor Id);
event_of(<<89, 119, L, _:L/binary, Id:32, _:32, Rest/binary>>) ->
    kind(Rest, {port, Id});
event_of(<<89, 100, L:16, _:L/binary, Id:32, _:32, Rest/binary>>) ->
    kind(Rest, {port, Id});
event_of(<<120, 119, L, _:L/binary, Id:64, _:32, Rest/binary>>) ->
    kind(Rest, {port, Id});
event_of(<<120, 100, L:16, _:L/binary, Id:64, _:32, Rest/binary>>) ->
    kind(Rest, {port, Id});
event_of(_) ->
    bad.

kind(<<119, L, Kind:L/binary, Rest/binary>>, Who) -> kind(Kind, Rest, Who);
kind(<<100, L:16, Kind:L/binary, Rest/binary>>, Who) -> kind(Kind, Rest, Who);
kind(_, _) -> bad.

kind(Kind, Rest, {port, _} = Port) -> port(Kind, Rest, Port);
kind(<<"call">>, Rest, Who) ->
    case name(Rest) of
        {Name, More} ->
            %% Without what the match specification adds the time comes next.
            case name(More) of
                {Caller, Last} -> timed({call, Who, Name, Caller}, stamp(Last));
                bad -> timed({call, Who, Name, top}, stamp(More))
            end;
        bad -> bad
    end;
kind(<<"return_to">>, Rest, Who) ->
    case name(Rest) of
        {Name, More} -> timed({return_to, Who, Name}, stamp(More));
        bad -> bad
    end;
kind(<<"in">>, Rest, Who) -> sched(in, Rest, Who);
kind(<<"out">>, Rest, Who) -> sched(out, Rest, Who);
kind(<<"in_exiting">>, Rest, Who) -> sched(in, Rest, Who);
kind(<<"out_exiting">>, Rest, Who) -> sched(out, Rest, Who);
kind(<<"out_exited">>, Rest, Who) -> sched(exited, Rest, Who);
kind(<<"spawned">>, Rest, Who) -> timed({spawned, Who, begun(Rest)}, last_time(Rest));
kind(<<"gc_minor_start">>, Rest, Who) -> timed({gc, Who, begins}, last_time(Rest));
kind(<<"gc_major_start">>, Rest, Who) -> timed({gc, Who, begins}, last_time(Rest));
kind(<<"gc_minor_end">>, Rest, Who) -> timed({gc, Who, ends}, last_time(Rest));
kind(<<"gc_major_end">>, Rest, Who) -> timed({gc, Who, ends}, last_time(Rest));
kind(<<"send">>, Rest, Who) -> timed({sent, Who}, last_time(Rest));
kind(<<"receive">>, Rest, Who) -> timed({received, Who}, last_time(Rest));
kind(_, Rest, Who) -> timed({other, Who}, last_time(Rest)).

%% What a process called for is named by an atom, the tasks of the port's own queue by a zero.
port(<<"in">>, Rest, Port) -> task(begins, Rest, Port);
port(<<"out">>, Rest, Port) -> task(ends, Rest, Port);
port(<<"open">>, Rest, Port) ->
    Name = case after_pid(Rest) of
               bad -> none;
               More -> first_word(More)
           end,
    timed({opened, Port, Name}, last_time(Rest));
port(<<"closed">>, Rest, Port) -> timed({closed, Port}, last_time(Rest));
port(_, Rest, Port) -> timed({other, Port}, last_time(Rest)).

task(What, Rest, Port) -> timed({task, Port, What, first_word(Rest)}, last_time(Rest)).

first_word(Bin) ->
    case atom(Bin) of
        {_, Rest} ->
            Atom = binary:part(Bin, 0, byte_size(Bin) - byte_size(Rest)),
            <<104, 3, 119, 6, "[port]", Atom/binary, 97, 0>>;
        bad -> none
    end.

%% A process that has no function yet or no more has a zero.
sched(What, Rest, Who) ->
    case name(Rest) of
        {Name, More} -> timed({sched, Who, What, Name}, stamp(More));
        bad -> timed({sched, Who, What, none}, last_time(Rest))
    end.

timed(_, bad) -> bad;
timed({call, Who, Name, Caller}, Time) -> {call, Who, Name, Caller, Time};
timed({sched, Who, What, Name}, Time) -> {sched, Who, What, Name, Time};
timed({task, Who, What, Name}, Time) -> {task, Who, What, Name, Time};
timed({Kind, Who, What}, Time) -> {Kind, Who, What, Time};
timed({Kind, Who}, Time) -> {Kind, Who, Time}.

%% `{Module, Function, Arity}', or the atom that stands for none.
name(<<104, 3, 119, L1, _:L1/binary, 119, L2, _:L2/binary, 97, _, _/binary>> = Bin) ->
    split(8 + L1 + L2, Bin);
name(<<104, 3, 100, L1:16, _:L1/binary, 100, L2:16, _:L2/binary, 97, _, _/binary>> = Bin) ->
    split(10 + L1 + L2, Bin);
name(<<119, 9, "undefined", Rest/binary>>) -> {none, Rest};
name(<<100, 9:16, "undefined", Rest/binary>>) -> {none, Rest};
name(<<104, 3, Rest/binary>> = Bin) ->
    %% An atom with letters that older releases write in another way than others.
    case after_atoms(2, Rest) of
        <<97, _, More/binary>> -> split(byte_size(Bin) - byte_size(More), Bin);
        _ -> bad
    end;
name(_) -> bad.

split(N, Bin) ->
    <<Name:N/binary, Rest/binary>> = Bin,
    {Name, Rest}.

after_atoms(0, Bin) -> Bin;
after_atoms(N, Bin) ->
    case atom(Bin) of
        {_, Rest} -> after_atoms(N - 1, Rest);
        bad -> bad
    end.

atom(<<119, L, Name:L/binary, Rest/binary>>) -> {{utf8, Name}, Rest};
atom(<<118, L:16, Name:L/binary, Rest/binary>>) -> {{utf8, Name}, Rest};
atom(<<100, L:16, Name:L/binary, Rest/binary>>) -> {{latin1, Name}, Rest};
atom(<<115, L, Name:L/binary, Rest/binary>>) -> {{latin1, Name}, Rest};
atom(_) -> bad.

stamp(<<110, 8, 0, Time:64/little>>) -> Time;
stamp(<<110, 8, 1, Time:64/little>>) -> -Time;
stamp(<<110, N, Sign, Digits:N/binary>>) when N > 0 ->
    Time = binary:decode_unsigned(Digits, little),
    case Sign of
        0 -> Time;
        _ -> -Time
    end;
stamp(<<98, Time:32/signed>>) -> Time;
stamp(<<97, Time>>) -> Time;
stamp(_) -> bad.

%% The time is the last element of all messages. A monotonic clock of nanoseconds has eight bytes
%% but in the first seconds after zero.
last_time(Rest) when byte_size(Rest) >= 11 ->
    case binary:part(Rest, byte_size(Rest), -11) of
        <<110, 8, _, _:64>> = Time -> stamp(Time);
        _ -> shorter_time([10, 9, 8, 5, 2], Rest)
    end;
last_time(Rest) ->
    shorter_time([10, 9, 8, 5, 2], Rest).

shorter_time([N | More], Rest) when byte_size(Rest) >= N ->
    case stamp(binary:part(Rest, byte_size(Rest), -N)) of
        bad -> shorter_time(More, Rest);
        Time -> Time
    end;
shorter_time([_ | More], Rest) -> shorter_time(More, Rest);
shorter_time([], _) -> bad.

%% What a new process begins with comes with its arguments: `{Module, Function, Args}' after the
%% parent. As a name it has the arity.
begun(Rest) ->
    case after_pid(Rest) of
        <<104, 3, More/binary>> ->
            case after_atoms(2, More) of
                bad -> none;
                Args ->
                    Atoms = binary:part(More, 0, byte_size(More) - byte_size(Args)),
                    case args(Args) of
                        none -> none;
                        Arity -> <<104, 3, Atoms/binary, 97, Arity>>
                    end
            end;
        _ -> none
    end.

after_pid(<<88, Rest/binary>>) ->
    case atom(Rest) of
        {_, <<_:12/binary, More/binary>>} -> More;
        _ -> bad
    end;
after_pid(_) -> bad.

args(<<106, _/binary>>) -> 0;
args(<<107, N:16, _/binary>>) when N < 256 -> N;
args(<<108, N:32, _/binary>>) when N < 256 -> N;
args(_) -> none.

%%% A name

%% @doc Is it one, and nothing else?
-spec is_name(binary()) -> boolean().
is_name(Bytes) -> name(Bytes) =:= {Bytes, <<>>}.

%% @doc What a name says. This makes atoms, so it is for names that were counted first.
-spec mfa(binary()) -> {module(), atom(), arity()}.
mfa(<<104, 3, Rest/binary>>) ->
    {M, More} = atom(Rest),
    {F, <<97, A>>} = atom(More),
    {as_atom(M), as_atom(F), A}.

%% A file that is damaged can have any bytes for a name, and more of them than an atom can.
as_atom(Atom) ->
    list_to_atom(lists:sublist(characters(Atom), 255)).

characters({Encoding, Bytes}) ->
    case unicode:characters_to_list(Bytes, Encoding) of
        Characters when is_list(Characters) -> Characters;
        _ -> binary_to_list(Bytes)
    end.

%% @doc What is told of a port, as a text. This makes no atom: commands can be of any number.
-spec word(binary()) -> binary().
word(<<104, 3, Rest/binary>>) ->
    {_, More} = atom(Rest),
    {Word, _} = atom(More),
    Text = characters(Word),
    %% A command has bytes, each of which became a character.
    try list_to_binary(Text)
    catch error:badarg -> unicode:characters_to_binary(Text)
    end.

%% @doc When an event was.
-spec time(event()) -> integer().
time(Event) -> element(tuple_size(Event), Event).
