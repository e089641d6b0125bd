%% SPDX-License-Identifier: Apache-2.0
%% @doc The way to another node: the connection, and the probe there.
-module(erlane_prof_attach).

-export([connect/2, attach/2, attach/3, format_error/1]).

-export_type([error/0]).

-type error() :: {name, node()} | {distribution, term()} | {host, string(), inet:posix()}
               | {no_epmd, string()} | {unknown, node(), Known :: [string()]}
               | {refused, node()} | {gone, node(), term()} | {timeout, node()}
               | {load, node(), term()} | {no_compiler, node(), Release :: string()}
               | {exception, term(), term()} | {declined, node(), unicode:chardata()}
               | no_source | ended.

%% What goes to the other node to look at it.
-define(MODULES, [erlane_prof_probe, erlane_prof_walk]).
-define(CALL_MS, 15000).
%% Names of the modules on other nodes: few, because a name stays in the table of atoms.
-define(NAMES, 64).
-define(TRIES, 5).
%% The compiler of OTP 27 and 29 has a pass whose code can ruin a heap.
-define(COMPILE, [no_ssa_opt_destructive_update, nowarn_deprecated_catch]).

%%% The connection

%% @doc See erlane_prof:connect/2.
-spec connect(node(), #{cookie => atom()}) -> ok | {error, error()}.
connect(Node, _Options) when Node =:= node() ->
    ok;
connect(Node, Options) ->
    case string:split(atom_to_list(Node), "@") of
        [[_ | _] = Name, [_ | _] = Host] ->
            case be_node(Host) of
                ok ->
                    _ = [erlang:set_cookie(Node, Cookie) || #{cookie := Cookie} <- [Options]],
                    connect(Node, Name, Host);
                Error ->
                    Error
            end;
        _ ->
            {error, {name, Node}}
    end.

connect(Node, Name, Host) ->
    case net_kernel:connect_node(Node) of
        true -> ok;
        _ -> {error, why_not(Node, Name, Host)}
    end.

%% Nobody connects to us, so our name needs no port mapper and no host that others can reach: it
%% is that of the other node, which has the form its names need.
be_node(Host) ->
    case is_alive() of
        true ->
            ok;
        false ->
            Random = binary:encode_unsigned(binary:decode_unsigned(unique()) rem (1 bsl 40)),
            Name = list_to_atom(lists:flatten(["erlane_", hex(Random), "@", Host])),
            Domain = case lists:member($., Host) of
                         true -> longnames;
                         false -> shortnames
                     end,
            case net_kernel:start(Name, #{name_domain => Domain, hidden => true,
                                          dist_listen => false}) of
                {ok, _} -> ok;
                {error, Reason} -> {error, {distribution, Reason}}
            end
    end.

unique() ->
    erlang:md5(term_to_binary({os:getpid(), erlang:system_time(), make_ref(), self()})).

hex(Bytes) ->
    [io_lib:format("~2.16.0b", [Byte]) || <<Byte>> <= Bytes].

%% The distribution says no more than that it could not.
why_not(Node, Name, Host) ->
    case erl_epmd:names(Host) of
        {ok, Names} ->
            case lists:keymember(Name, 1, Names) of
                true -> {refused, Node};
                false -> {unknown, Node, [Known || {Known, _Port} <- Names]}
            end;
        {error, address} ->
            case inet:gethostbyname(Host) of
                {ok, _} -> {no_epmd, Host};
                {error, Reason} -> {host, Host, Reason}
            end;
        {error, nxdomain} ->
            {host, Host, nxdomain};
        {error, _} ->
            {no_epmd, Host}
    end.

%%% The probe

%% @doc See erlane_prof:attach/2; the pid is that of the probe's worker.
-spec attach(node(), erlane_prof:options()) -> {ok, pid()} | {error, error()}.
attach(Node, Options) ->
    attach(Node, ?MODULES, Options).

%% @doc Brings modules to a node and calls `start(Caller, Options)' of the first of them, which
%% answers `{ok, pid()}'. It gets the option `unload', what it has to remove when it ends, if they
%% are not the node's own. All must do with kernel, stdlib and each other.
-spec attach(node(), [module(), ...], map()) -> {ok, pid()} | {error, error()}.
attach(Node, [First | _], Options) when Node =:= node() ->
    case First:start(self(), maps:remove(ship, Options)) of
        {ok, Pid} -> {ok, Pid};
        {error, {declined, Node, _} = Reason} -> {error, Reason};
        {error, Reason} -> {error, {gone, Node, Reason}}
    end;
attach(Node, Modules, Options) ->
    case source(Modules, []) of
        {ok, Sources} -> ship(Node, Modules, Sources, Options, ?TRIES);
        Error -> Error
    end.

source([Module | Modules], Sources) ->
    case code:get_object_code(Module) of
        {Module, Beam, _File} ->
            case beam_lib:chunks(Beam, [abstract_code]) of
                {ok, {Module, [{abstract_code, {_Version, Forms}}]}} ->
                    source(Modules, [Forms | Sources]);
                _ ->
                    {error, no_source}
            end;
        error ->
            {error, no_source}
    end;
source([], Sources) ->
    {ok, lists:reverse(Sources)}.

%% As one module under a name of its own, so that neither a probe that belongs to the node itself
%% nor that of another visitor is replaced, and then purged with ours.
ship(Node, _Modules, _Sources, _Options, 0) ->
    {error, {load, Node, taken}};
ship(Node, [First | _] = Modules, Sources, Options, Tries) ->
    N = integer_to_list(erlang:phash2(unique(), ?NAMES)),
    Name = list_to_atom(atom_to_list(First) ++ "_" ++ N),
    Forms = erlane_prof_merge:forms(Name, lists:zip(Modules, Sources)),
    Answer = case Options of
                 #{ship := forms} -> as_forms(Node, Name, Forms, Options);
                 _ -> as_code(Node, Name, Forms, Options)
             end,
    case Answer of
        {ok, Worker} when is_pid(Worker) -> {ok, Worker};
        taken -> ship(Node, Modules, Sources, Options, Tries - 1);
        {error, Reason} -> {error, Reason}
    end.

as_code(Node, Name, Forms, Options) ->
    {ok, _, Beam} = compile:forms(Forms, ?COMPILE),
    case load(Node, Name, Options, "Code", Beam) of
        %% Code of a newer compiler than the node can load.
        {error, {load, Node, badfile}} -> as_forms(Node, Name, Forms, Options);
        Answer -> Answer
    end.

as_forms(Node, Name, Forms, Options) ->
    Compile = "begin {ok, _, B} = compile:forms(Code, Compile), B end",
    case load(Node, Name, Options, Compile, Forms) of
        {error, {exception, undef, [{compile, _, _, _} | _]}} ->
            Release = call(Node, erlang, system_info, [otp_release]),
            {error, {no_compiler, Node, Release}};
        Answer ->
            Answer
    end.

%% Loading and starting are one call, and the process that makes it on the other node does not
%% end with us: if we end meanwhile, the probe starts, sees it, and cleans up.
load(Node, Name, Options, Get, Code) ->
    Text = "case erlang:module_loaded(Name) of"
           "    false ->"
           "        case code:load_binary(Name, \"erlane_prof\", " ++ Get ++ ") of"
           "            {module, Name} -> Name:start(Caller, Options);"
           "            {error, Reason} -> {error, {load, node(), Reason}}"
           "        end;"
           "    true -> taken "
           "end.",
    {ok, Tokens, _} = erl_scan:string(Text),
    {ok, Exprs} = erl_parse:parse_exprs(Tokens),
    %% An ordered list, as erl_eval of all releases takes it.
    Bindings = orddict:from_list([{'Name', Name}, {'Code', Code}, {'Caller', self()},
                                  {'Compile', ?COMPILE},
                                  {'Options', (maps:remove(ship, Options))#{unload => [Name]}}]),
    case call(Node, erl_eval, exprs, [Exprs, Bindings]) of
        {value, Answer, _} -> Answer;
        {error, Reason} -> {error, Reason}
    end.

call(Node, M, F, A) ->
    try
        erpc:call(Node, M, F, A, ?CALL_MS)
    catch
        error:{erpc, timeout} -> {error, {timeout, Node}};
        error:{erpc, Reason} -> {error, {gone, Node, Reason}};
        error:{exception, Reason, Stack} -> {error, {exception, Reason, Stack}}
    end.

%%% Words

%% @doc See erlane_prof:format_error/1.
-spec format_error(error()) -> string().
format_error({name, Node}) ->
    f("~ts is no name of a node: NAME@HOST is one", [Node]);
format_error({distribution, Reason}) ->
    f("this VM cannot become a node: ~0tp", [Reason]);
format_error({host, Host, Reason}) ->
    f("host ~ts: ~ts", [Host, inet:format_error(Reason)]);
format_error({no_epmd, Host}) ->
    f("nothing answers on ~ts as Erlang's port mapper (epmd): no node runs there, or port 4369 "
      "is not open to us", [Host]);
format_error({unknown, Node, []}) ->
    f("no node ~ts: epmd there knows none", [Node]);
format_error({unknown, Node, Known}) ->
    f("no node ~ts: epmd there knows ~ts", [Node, lists:join(", ", lists:sort(Known))]);
format_error({refused, Node}) ->
    f("~ts is there and refuses us: another cookie, most likely; or one side uses long names and "
      "the other short ones, or it speaks TLS", [Node]);
format_error({gone, Node, noconnection}) ->
    f("~ts went away", [Node]);
format_error({gone, Node, Reason}) ->
    f("the probe on ~ts ended: ~0tp", [Node, Reason]);
format_error({timeout, Node}) ->
    f("~ts does not answer", [Node]);
format_error({no_compiler, Node, Release}) ->
    f("~ts runs OTP ~ts, which cannot load our code and has no compiler: build erlane with OTP ~ts",
      [Node, Release, Release]);
format_error({load, Node, Reason}) ->
    f("~ts does not load the probe: ~0tp", [Node, Reason]);
format_error({declined, Node, Why}) ->
    f("~ts: ~ts", [Node, Why]);
format_error(no_source) ->
    "the probe was built without debug_info, and cannot be sent";
format_error(ended) ->
    "the process has ended";
format_error({exception, Reason, Stack}) ->
    f("the probe could not be started: ~0tp ~0tp", [Reason, Stack]).

f(Format, Args) ->
    lists:flatten(io_lib:format(Format, Args)).
