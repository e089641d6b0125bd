%% SPDX-License-Identifier: Apache-2.0
%% @doc Who is compared: what each contestant is, how it is started, and which version it has.
-module(erlane_bench_contestant).

-export([names/1, title/1, start/3, stop/1, version/2]).
-export([build/1, peer/2]).

-export_type([kind/0, running/0, config/0]).

-type kind() :: http | echo | proxy.
-type config() :: #{root := file:filename(), tmp := file:filename(),
                    server_core := non_neg_integer(), load_core := non_neg_integer(),
                    peers := ok | {missing | failed, binary()},
                    buffer => non_neg_integer(), upstream => inet:port_number()}.
-type running() :: #{name := string(), port := inet:port_number(),
                     program := erlane_bench_os:program()}.

-define(START_MS, 15000).

%% The flags with which an Erlang node that has one core for itself should run.
-define(TUNED, ["+S", "1", "+sbwt", "none", "+sbwtdcpu", "none", "+sbwtdio", "none"]).

%% @doc The contestants of a scenario, in the order of its table.
-spec names(Scenario :: string()) -> [string()].
names("http") ->
    ["gen_tcp", "socket", "erlane", "c-epoll", "c-uring", "nginx",
     "gen_tcp-defaults", "socket-defaults"];
names("short") ->
    ["gen_tcp", "socket", "erlane", "gen_tcp-deferred", "erlane-deferred", "c-epoll", "c-uring",
     "nginx"];
names("proxy") ->
    ["gen_tcp", "socket", "erlane", "relay", "c-epoll", "c-uring", "nginx", "haproxy",
     "gen_tcp-defaults", "socket-defaults"];
names("server") ->
    ["gen_tcp", "erlane-http", "erlane-http-gen_tcp", "c-epoll", "nginx", "cowboy",
     "cowboy-erlane", "mochiweb", "yaws", "node", "go"];
names("server-idle") ->
    ["erlane-http", "erlane-http-gen_tcp", "cowboy", "cowboy-erlane", "mochiweb", "yaws"];
names("scrape") ->
    ["none", "text", "openmetrics", "protobuf", "text-gzip"];
names("metrics") ->
    ["counters", "atomics", "ets", "folsom-counter", "counter", "folsom-histogram", "histogram"];
names("shard") ->
    ["counters", "ets-plain", "ets", "ets-auto", "ets-decentralized", "ets-per-scheduler",
     "gen_server", "bare", "shards", "shards-buffer"];
names("flood") ->
    ["stock", "buffer", "delay_send", "tuned", "tuned-boot", "tls", "carrier-socket", "lists",
     "router", "router-list"];
names("flood-fanout") ->
    ["stock", "tuned", "erpc", "helper", "router"];
names("flood-latency") ->
    ["stock", "tuned", "router"];
names("flood-matrix") ->
    ["stock", "tuned", "router", "router-list"];
names("native" ++ _ = Scenario) ->
    erlane_bench_native:names(Scenario);
names("profile") ->
    erlane_bench_profile:names();
names("batch") ->
    ["plain", "batch", "batch-256"];
names("fanout") ->
    ["loop", "pg", "helpers", "fanout", "unbounded"];
names("fanout-pull") ->
    ["loop", "fanout", "pull", "frames"];
names("fanout-" ++ Which) when Which =:= "sockets"; Which =:= "web" ->
    ["gen_tcp", "erlane", "fanout"];
names(_LatencyIdleEcho) ->
    ["gen_tcp", "socket", "erlane"].

%% @doc What a contestant is, in one line.
-spec title(string()) -> string().
title("gen_tcp") -> "gen_tcp, one scheduler, no busy wait";
title("socket") -> "gen_tcp over the socket backend, same flags";
title("erlane") -> "erlane under gen_tcp, same program, same flags";
title("relay") -> "erlane_socket:relay/3, same flags";
title("c-epoll") -> "C, epoll, one thread (the floor)";
title("c-uring") -> "C, io_uring, one thread";
title("nginx") -> "nginx, one worker";
title("haproxy") -> "HAProxy, mode tcp, one thread";
title("erlane-http") -> "erlane_http over erlane sockets, one scheduler, no busy wait";
title("erlane-http-gen_tcp") -> "erlane_http over the sockets of the VM, same flags";
title("cowboy") -> "Cowboy, same flags";
title("cowboy-erlane") -> "Cowboy over erlane sockets, same flags";
title("mochiweb") -> "mochiweb, same flags";
title("yaws") -> "Yaws in embedded mode, same flags";
title("node") -> "http of Node.js";
title("go") -> "net/http of Go";
title("counters") -> "counters:add/3 with write_concurrency (the floor)";
title("atomics") -> "atomics:add/3: one cell for all writers";
title("none") -> "no scrape: what the machine and the writers do by themselves";
title("text") -> "Prometheus text";
title("openmetrics") -> "OpenMetrics 1.0 text";
title("protobuf") -> "Prometheus protobuf";
title("text-gzip") -> "Prometheus text, compressed";
title("ets") -> "ets:update_counter/3, table with write_concurrency";
title("ets-plain") -> "the same, a table without options";
title("ets-auto") -> "the same, {write_concurrency, auto}";
title("ets-decentralized") -> "the same, and decentralized counters";
title("ets-per-scheduler") -> "the same, a table for each scheduler, summed by the reader";
title("gen_server") -> "one gen_server, cast, every 200th a call";
title("bare") -> "a number sent to a loop that adds it up, a process for each scheduler";
title("shards") -> "erlane_shard:add/3, one message for each update";
title("shards-buffer") -> "erlane_shard_buffer:add/3, 1000 updates together";
title("folsom-counter") -> "folsom's counter";
title("folsom-histogram") -> "folsom's histogram, uniform sample";
title("counter") -> "erlane_metrics:inc/1 of a counter";
title("histogram") -> "erlane_metrics:observe/2 of a histogram";
title("stock") -> "`!' over the distribution as it comes";
title("buffer") -> "`!', {buffer, 262144}";
title("delay_send") -> "`!', the same and {delay_send, true}";
title("tuned") -> "`!', the same and watermarks of 1 MB: erlane_dist:tune()";
title("tuned-boot") -> "`!', the same and +zdbbl 32768";
title("tls") -> "`!' over TLS, -proto_dist inet_tls";
title("carrier-socket") -> "`!' over sockets in Erlang, -proto_dist inet_epmd -inet_epmd socket";
title("lists") -> "lists of 1000 messages made by hand, tuned";
title("helper") -> "one `!' for each node to a process that passes it on, by hand, tuned";
title("erpc") -> "erpc:multicast/4 to nodes that know their receivers, tuned";
title("router") -> "erlane_router:send/2, tuned";
title("router-list") -> "erlane_router:send/2 with a list of receivers, tuned";
title("plain") -> "`!' for each message";
title("batch") -> "erlane_batch:send/2, default options";
title("batch-256") -> "erlane_batch:send/2, batches of 256";
title("loop") -> "a loop of `!' over a list";
title("pg") -> "a loop of `!' over the members of a group of pg";
title("helpers") -> "a process on each scheduler that loops over its part, by hand";
title("fanout") -> "erlane_fanout, pushed or written to sockets";
title("unbounded") -> "the same with {limit, infinity}, as unbounded as `!'";
title("pull") -> "erlane_fanout:take/2, each message looked at";
title("frames") -> "erlane_fanout:take_frames/1, one binary for all";
title("gen_tcp-deferred") -> "gen_tcp, its listening socket with TCP_DEFER_ACCEPT";
title("erlane-deferred") -> "erlane under gen_tcp, the same option";
title("gen_tcp-defaults") -> "gen_tcp, default flags of the VM";
title("socket-defaults") -> "socket backend, default flags of the VM";
title(Name) ->
    case lists:member(Name, erlane_bench_profile:names()) of
        true -> erlane_bench_profile:title(Name);
        false -> erlane_bench_native:title(Name)
    end.

%% @doc Starts a contestant and waits until it listens. `missing' names what to install,
%% `unavailable' what the kernel lacks; anything else that keeps it from running is `failed'.
-spec start(string(), kind(), config()) ->
          {ok, running()} | {missing | unavailable | failed, binary()}.
start("c-" ++ Way = Name, Kind, Config) ->
    Args = case Kind of
               http -> ["0"];
               proxy -> ["0", "127.0.0.1", upstream(Config)]
           end,
    File = Way ++ "_" ++ case Kind of http -> "http"; proxy -> "relay" end,
    case peer(File, Config) of
        {ok, Exe} -> announced(Name, run(Exe, Args, Config));
        Why -> Why
    end;
start("nginx", Kind, Config) ->
    Module = "/usr/lib/nginx/modules/ngx_stream_module.so",
    case {erlane_bench_os:find("nginx"), Kind =/= proxy orelse filelib:is_regular(Module)} of
        {error, _} -> {missing, <<"nginx-core">>};
        {_, false} -> {missing, <<"libnginx-mod-stream">>};
        {{ok, Exe}, true} ->
            configured("nginx", Exe, fun erlane_bench_config:nginx/3, Kind, Config,
                       fun(File, Dir) -> ["-e", Dir ++ "/error.log", "-p", Dir, "-c", File] end)
    end;
start("haproxy", proxy, Config) ->
    case erlane_bench_os:find("haproxy") of
        error -> {missing, <<"haproxy">>};
        {ok, Exe} ->
            configured("haproxy", Exe, fun erlane_bench_config:haproxy/3, proxy, Config,
                       fun(File, _Dir) -> ["-db", "-q", "-f", File] end)
    end;
start(Name, Kind, Config) ->
    case erlane_bench_web:find(Name, Config) of
        {erl, Paths, Args} ->
            erl(Name, ?TUNED, Paths, ["erlane_bench_web", "start", "-extra" | Args], Config);
        {program, Exe, Args} ->
            announced(Name, run(Exe, Args, Config));
        unknown ->
            {Backend, Flags} = case string:split(Name, "-") of
                                   [B, "defaults"] -> {B, []};
                                   _ -> {Name, ?TUNED}
                               end,
            Args = ["erlane_bench_server", "start", "-extra", atom_to_list(Kind), Backend,
                    integer_to_list(maps:get(buffer, Config, 0)), upstream(Config)],
            erl(Name, Flags, [], Args, Config);
        Why ->
            Why
    end.

%% A VM with what this one is made of and some libraries more.
erl(Name, Flags, Libraries, Start, Config) ->
    Apps = [?MODULE, erlane_socket, erlane_metrics, erlane_http],
    Paths = lists:usort([filename:dirname(File) || M <- Apps, File <- [code:which(M)],
                                                   is_list(File)]) ++ Libraries,
    Args = Flags ++ ["+P", "1048576", "-noshell", "-boot", "no_dot_erlang", "-pa"] ++ Paths ++
        ["-s" | Start],
    announced(Name, run(filename:join([code:root_dir(), "bin", "erl"]), Args, Config)).

upstream(Config) -> integer_to_list(maps:get(upstream, Config, 0)).

run(Exe, Args, #{server_core := Core}) ->
    erlane_bench_os:start(Exe, Args, Core).

%% A server of ours: it chooses its port and says so.
announced(Name, Program) ->
    case erlane_bench_os:await(Program, <<"ready ">>, ?START_MS) of
        {ok, Port} ->
            {ok, #{name => Name, port => binary_to_integer(Port), program => Program}};
        {error, Why} ->
            ok = erlane_bench_os:stop(Program),
            case Why of
                <<"the kernel ", _/binary>> -> {unavailable, Why};
                _ -> {failed, Why}
            end
    end.

%% A server with a file of configuration, for which we choose the port.
configured(Name, Exe, Text, Kind, #{tmp := Tmp} = Config, Args) ->
    Port = erlane_bench_os:free_port(),
    Dir = filename:join(Tmp, Name ++ "-" ++ integer_to_list(Port)),
    File = filename:join(Dir, Name ++ ".conf"),
    ok = filelib:ensure_dir(File),
    ok = file:write_file(File, Text(Kind, Port, Config#{dir => Dir})),
    Program = run(Exe, Args(File, Dir), Config),
    case erlane_bench_os:await_port(Port, ?START_MS) of
        ok ->
            {ok, #{name => Name, port => Port, program => Program}};
        timeout ->
            Answer = erlane_bench_os:await(Program, <<"ready ">>, 1),
            ok = erlane_bench_os:stop(Program),
            {failed, element(2, Answer)}
    end.

%% @doc Ends a contestant.
-spec stop(running()) -> ok.
stop(#{program := Program}) ->
    erlane_bench_os:stop(Program).

%% @doc Compiles the C peers of this machine. `missing' names the packages to install.
-spec build(Root :: file:filename()) -> ok | {missing | failed, binary()}.
build(Root) ->
    Dir = filename:join([Root, "bench", "peers"]),
    case [T || T <- ["make", "gcc"], erlane_bench_os:find(T) =:= error] of
        [] ->
            Said = erlane_bench_os:output("make", ["-s", "CC=gcc", "-C", Dir]),
            case filelib:is_regular(filename:join([Dir, "bin", "load"])) of
                true when Said =:= <<>> -> ok;
                _ -> {failed, lists:last(binary:split(Said, <<"\n">>, [global]))}
            end;
        _ ->
            {missing, <<"gcc make libc6-dev">>}
    end.

%% @doc Path of a C peer. The io_uring ones are not built without the header of the library.
-spec peer(string(), config()) -> {ok, file:filename()} | {missing | failed, binary()}.
peer(Name, #{root := Root, peers := ok}) ->
    File = filename:join([Root, "bench", "peers", "bin", Name]),
    case filelib:is_regular(File) of
        true -> {ok, File};
        false -> {missing, <<"liburing-dev">>}
    end;
peer(_Name, #{peers := Why}) ->
    Why.

%% @doc The version of a contestant, as it says itself; empty if it is not installed.
-spec version(string(), Root :: file:filename()) -> binary().
version("c-uring", Root) ->
    case erlane_bench_os:output("dpkg-query", ["-W", "-f", "${Version}", "liburing-dev"]) of
        <<D, _/binary>> = Library when D >= $0, D =< $9 ->
            <<(version("c-epoll", Root))/binary, ", liburing ", Library/binary>>;
        _ ->
            version("c-epoll", Root)
    end;
version("c-" ++ _, _Root) ->
    first_line(erlane_bench_os:output("gcc", ["--version"]));
version("nginx", _Root) ->
    first_line(erlane_bench_os:output("nginx", ["-v"]));
version("haproxy", _Root) ->
    first_line(erlane_bench_os:output("haproxy", ["-v"]));
version("folsom-" ++ _, _Root) ->
    _ = application:load(folsom),
    case application:get_key(folsom, vsn) of
        {ok, Text} -> iolist_to_binary(["folsom ", Text, ", ", otp()]);
        undefined -> <<>>
    end;
version(Ours, Root) when Ours =:= "erlane"; Ours =:= "erlane-deferred"; Ours =:= "relay";
                         Ours =:= "counter"; Ours =:= "histogram"; Ours =:= "erlane-http";
                         Ours =:= "erlane-http-gen_tcp"; Ours =:= "tuned";
                         Ours =:= "router"; Ours =:= "router-list"; Ours =:= "shards";
                         Ours =:= "shards-buffer"; Ours =:= "fanout"; Ours =:= "unbounded";
                         Ours =:= "pull"; Ours =:= "frames"; Ours =:= "batch";
                         Ours =:= "batch-256" ->
    _ = application:load(erlane),
    Version = case application:get_key(erlane, vsn) of
                  {ok, Text} -> Text;
                  undefined -> "of unknown version"
              end,
    Commit = case erlane_bench_os:output("git", ["-C", Root, "describe", "--always", "--dirty"]) of
                 <<"fatal", _/binary>> -> <<>>;
                 Id -> <<" ", Id/binary>>
             end,
    iolist_to_binary(["erlane ", Version, Commit, ", ", otp()]);
version(Name, _Root) ->
    case erlane_bench_web:version(Name) of
        unknown -> otp();
        {library, <<>>} -> <<>>;
        {library, Version} -> <<Version/binary, ", ", (otp())/binary>>;
        Version -> Version
    end.

otp() ->
    Release = erlang:system_info(otp_release),
    File = filename:join([code:root_dir(), "releases", Release, "OTP_VERSION"]),
    Version = case file:read_file(File) of
                  {ok, Text} -> string:trim(Text);
                  {error, _} -> Release
              end,
    iolist_to_binary(["OTP ", Version, ", ERTS ", erlang:system_info(version)]).

first_line(Text) ->
    hd(binary:split(Text, <<"\n">>)).
