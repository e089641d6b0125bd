%% SPDX-License-Identifier: Apache-2.0
%% @doc `erlane serve': the files of a directory, or a hello, over HTTP until SIGTERM or SIGINT.
-module(erlane_cli_serve).

-export([run/1, help/0]).

-define(LISTENER, serve).
-define(DRAIN_MS, 10000).
-define(ADDRESS, {"127.0.0.1", 8000}).
-define(HELLO, <<"Hello world!\n">>).

%% @doc The text of `erlane help serve'.
-spec help() -> iodata().
help() ->
    Default = fun(Key) -> io_lib:format("~tp", [erlane_http_opts:default(Key)]) end,
    ["usage: erlane serve DIR [OPTION]...\n"
     "       erlane serve --hello [OPTION]...\n"
     "\n"
     "Serves the files under DIR, or one line of text, over HTTP/1.1.\n"
     "\n"
     "  --listen ADDRESS       HOST:PORT, [IPV6]:PORT or unix:PATH (",
     erlane_proxy_address:format(?ADDRESS), ");\n"
     "                         port 0 takes a free one\n"
     "  --socket KIND          erlane, or gen_tcp for the sockets of the VM (",
     Default(socket), ")\n"
     "  --tls CERT KEY         HTTPS with these PEM files\n"
     "  --listing              pages for directories that have no index.html\n"
     "  --dotfiles             also names that begin with a dot\n"
     "  --cache-control TEXT   goes out with every file, as in max-age=60\n"
     "  --max-connections N    accept no more than N at a time (", Default(connections), ")\n"
     "  --idle-timeout MS      between two requests (", Default(idle_timeout),
     "; or infinity)\n"
     "  --access-log FILE      a line for each request; - writes them to standard output,\n"
     "                         which then has no live figures\n"
     "  --log-format FORMAT    common, combined or json (combined)\n"
     "  --drain MS             what connections get to end after SIGTERM or Ctrl-C (",
     integer_to_list(?DRAIN_MS), ");\n"
     "                         a second signal ends the wait\n"
     "  --backlog N            queue of the listening socket (", Default(backlog), ")\n"
     "  --quiet                no live figures\n"].

options() ->
    #{argument => {root, text},
      "--hello" => {hello, flag},
      "--listen" => {listen, address},
      "--socket" => {socket, {one_of, [erlane, gen_tcp]}},
      "--tls" => {tls, two_texts},
      "--listing" => {listing, flag},
      "--dotfiles" => {dotfiles, flag},
      "--cache-control" => {cache_control, text},
      "--max-connections" => {connections, {integer_or_infinity, 1}},
      "--idle-timeout" => {idle_timeout, {integer_or_infinity, 1}},
      "--access-log" => {access_log, text},
      "--log-format" => {log_format, {one_of, [common, combined, json]}},
      "--drain" => {drain, {integer, 0, 1000000000}},
      "--backlog" => {backlog, {integer, 1, 65535}},
      "--quiet" => {quiet, flag},
      "--help" => {help, flag}}.

%% @doc Runs the command; the result is the exit status.
-spec run([string()]) -> non_neg_integer().
run(Args) ->
    case erlane_cli_options:parse(Args, options()) of
        {ok, #{help := true}} ->
            io:put_chars(help()),
            0;
        {ok, #{root := Root, hello := true}} ->
            usage_error(["--hello serves no directory, but there is ", Root]);
        {ok, #{hello := true} = Opts} ->
            _ = [usage_error([Name, " is about files, and --hello has none"])
                 || {Key, Name} <- file_options(), is_map_key(Key, Opts)],
            serve({erlane_hello, ?HELLO}, "hello", Opts);
        {ok, #{root := Root} = Opts} ->
            serve(files(Root, Opts), Root, Opts);
        {ok, _} ->
            usage_error("a directory is required, or --hello");
        {error, Why} ->
            usage_error(Why)
    end.

-spec usage_error(iodata()) -> no_return().
usage_error(Why) ->
    erlane_cli:usage_error(["serve: ", Why], help()).

file_options() ->
    [{listing, "--listing"}, {dotfiles, "--dotfiles"}, {cache_control, "--cache-control"}].

files(Root, Opts) ->
    case filelib:is_dir(Root) of
        true -> ok;
        false ->
            erlane_cli:fail("serve: ~ts: ~ts", [Root, case filelib:is_file(Root) of
                                                          true -> "not a directory";
                                                          false -> "no such directory"
                                                      end])
    end,
    Given = maps:with([Key || {Key, _} <- file_options()], Opts),
    {erlane_http_file,
     maps:map(fun(cache_control, Text) -> unicode:characters_to_binary(Text);
                 (_, Value) -> Value
              end, Given#{root => filename:absname(Root)})}.

serve(Handler, What, Opts) ->
    %% Before the listener opens: a signal is never met by the VM's own handler.
    ok = erlane_cli_signal:install(self()),
    start_app(erlane_http),
    Address = address(maps:get(listen, Opts, ?ADDRESS)),
    Listener = maps:merge(maps:with([socket, connections, idle_timeout, backlog], Opts),
                          maps:merge(maps:merge(Address, tls(Opts)), log(Opts))),
    case erlane_http:start(?LISTENER, Listener#{handler => Handler}) of
        {ok, _} ->
            io:format("serve ~ts at ~ts~n", [What, url(erlane_http:info(?LISTENER))]),
            Quiet = is_map_key(quiet, Opts) orelse maps:get(access_log, Opts, "") =:= "-",
            erlane_cli_loop:until_signal(erlane_cli_serve_live, ?LISTENER, Quiet),
            not Quiet andalso erlane_cli_loop:terminal() andalso io:nl(),
            stop(maps:get(drain, Opts, ?DRAIN_MS));
        {error, Reason} ->
            erlane_cli:fail("serve: ~ts", [error_text(Reason, Opts)])
    end.

start_app(App) ->
    case application:ensure_all_started(App) of
        {ok, _} -> ok;
        {error, Reason} -> erlane_cli:fail("serve: cannot start: ~0tp", [Reason])
    end.

address(Listen) ->
    case erlane_proxy_address:resolve(Listen) of
        {ok, {local, _} = Path} -> #{ip => Path};
        {ok, {Ip, Port}} -> #{ip => Ip, port => Port};
        {error, {Reason, What}} ->
            erlane_cli:fail("serve: --listen: ~ts: ~ts (~ts)",
                            [What, inet:format_error(Reason), Reason])
    end.

%% ssl reads the files when the first client comes; whoever gives wrong ones is to know now.
tls(#{tls := {Cert, Key}}) ->
    start_app(ssl),
    ok = pem(Cert, fun(Type) -> Type =:= 'Certificate' end, "no certificate in it"),
    ok = pem(Key, fun(Type) -> lists:suffix("PrivateKey", atom_to_list(Type))
                                   orelse Type =:= 'PrivateKeyInfo'
                  end, "no private key in it"),
    #{tls => [{certfile, Cert}, {keyfile, Key}]};
tls(_) ->
    #{}.

pem(File, Wanted, Otherwise) ->
    case file:read_file(File) of
        {ok, Text} ->
            Entries = public_key:pem_decode(Text),
            lists:any(fun({Type, _, _}) -> Wanted(Type) end, Entries)
                orelse erlane_cli:fail("serve: --tls: ~ts: ~ts", [File, Otherwise]),
            ok;
        {error, Why} ->
            erlane_cli:fail("serve: --tls: ~ts: ~ts", [File, file:format_error(Why)])
    end.

log(#{access_log := To} = Opts) ->
    Out = case To of
              "-" -> fun(Line) -> io:put_chars(Line) end;
              File -> File
          end,
    #{access_log => {maps:get(log_format, Opts, combined), Out}};
log(#{log_format := _}) ->
    usage_error("--log-format needs --access-log");
log(_) ->
    #{}.

url(#{ip := {local, Path}}) -> ["unix:", Path];
url(#{scheme := Scheme, ip := Ip, port := Port}) ->
    [atom_to_list(Scheme), "://", erlane_proxy_address:format({Ip, Port}), "/"].

error_text({access_log, Why}, #{access_log := File}) ->
    ["--access-log: ", File, ": ", file:format_error(Why)];
error_text({Key, Why}, _) ->
    io_lib:format("~ts: ~0tp", [Key, Why]);
error_text(Posix, Opts) ->
    [erlane_proxy_address:format(maps:get(listen, Opts, ?ADDRESS)), ": ",
     inet:format_error(Posix), " (", atom_to_list(Posix), ")"].

%% Open connections get the time of --drain to end; a second signal ends the wait.
stop(DrainMs) ->
    Began = erlang:monotonic_time(millisecond),
    #{connections := Open} = erlane_http:info(?LISTENER),
    Self = self(),
    _ = spawn_link(fun() -> ok = erlane_http:drain(?LISTENER, DrainMs), Self ! drained end),
    drained(),
    #{accepted := Accepted, requests := Requests} = erlane_http:info(?LISTENER),
    ok = erlane_http:stop(?LISTENER, #{drain => 0}),
    io:format("serve stopped: ~b connections, ~b requests; ~b were open, gone after ~b ms~n",
              [Accepted, Requests, Open, erlang:monotonic_time(millisecond) - Began]),
    0.

drained() ->
    receive
        drained -> ok;
        {signal, _} ->
            _ = spawn(fun() -> erlane_http:drain(?LISTENER, 0) end),
            drained()
    end.
