%% SPDX-License-Identifier: Apache-2.0
%% @doc The smallest configurations of nginx and HAProxy for a fair run: one process, one
%% thread, no log, no limit that a benchmark meets. Pure.
-module(erlane_bench_config).

-export([nginx/3, haproxy/3]).

%% @doc nginx as a web server, or as a proxy by its stream module.
-spec nginx(http | proxy, inet:port_number(), #{dir := file:filename(), _ => _}) -> iodata().
nginx(Kind, Port, #{dir := Dir} = Config) ->
    [["load_module /usr/lib/nginx/modules/ngx_stream_module.so;\n" || Kind =:= proxy],
     "daemon off;\n"
     "master_process off;\n"
     "worker_processes 1;\n"
     "worker_rlimit_nofile 16384;\n"
     "pid ", Dir, "/nginx.pid;\n"
     "events { worker_connections 8192; }\n",
     nginx_section(Kind, Port, Config)].

nginx_section(http, Port, #{dir := Dir}) ->
    ["http {\n"
     "    access_log off;\n"
     "    keepalive_requests 1000000000;\n"
     "    keepalive_timeout 1h;\n",
     [["    ", Name, "_temp_path ", Dir, "/", Name, ";\n"]
      || Name <- ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]],
     "    server {\n"
     "        listen 127.0.0.1:", integer_to_list(Port), " backlog=4096;\n"
     "        location / {\n"
     "            default_type text/plain;\n"
     "            return 200 \"Hello world!\";\n"
     "        }\n"
     "    }\n"
     "}\n"];
nginx_section(proxy, Port, #{upstream := Upstream}) ->
    ["stream {\n"
     "    access_log off;\n"
     "    proxy_timeout 1h;\n"
     "    proxy_buffer_size 64k;\n"
     "    server {\n"
     "        listen 127.0.0.1:", integer_to_list(Port), " backlog=4096;\n"
     "        proxy_pass 127.0.0.1:", integer_to_list(Upstream), ";\n"
     "    }\n"
     "}\n"].

%% @doc HAProxy as a proxy of bytes. Its buffer is as large as that of the others.
-spec haproxy(proxy, inet:port_number(), #{upstream := inet:port_number(), _ => _}) -> iodata().
haproxy(proxy, Port, #{upstream := Upstream}) ->
    ["global\n"
     "    nbthread 1\n"
     "    maxconn 4096\n"
     "    tune.bufsize 65536\n"
     "defaults\n"
     "    mode tcp\n"
     "    timeout connect 5s\n"
     "    timeout client 1h\n"
     "    timeout server 1h\n"
     "listen bench\n"
     "    bind 127.0.0.1:", integer_to_list(Port), " backlog 4096\n"
     "    server upstream 127.0.0.1:", integer_to_list(Upstream), "\n"].
