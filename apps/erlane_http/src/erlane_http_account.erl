%% SPDX-License-Identifier: Apache-2.0
%% @doc What is told of a connection and its requests: to the metrics, the access log, the log,
%% and the handler's event/3.
-module(erlane_http_account).

-export([done/5, refused/5, crashed/5, died/2, event/3]).

-include("erlane_http.hrl").
-include_lib("kernel/include/logger.hrl").

-define(LOG_DEPTH, 60).
%% Of a head that nobody understood so much is in the access log.
-define(MAX_LINE, 256).

%% @doc A request was answered, with so many bytes after so many nanoseconds.
-spec done(100..999, Sent :: non_neg_integer(), #req{}, Ns :: integer(), #srv{}) -> ok.
done(Status, Sent, #req{head = #head{method = Method}} = Req, Ns, Srv) ->
    ok = erlane_http_metrics:request(Srv#srv.metrics, Method, Status, Ns, Sent),
    tell(Status, Sent, Req, Ns, Srv).

tell(_, _, _, _, #srv{event = false, log = none}) -> ok;
tell(Status, Sent, #req{head = Head, conn = Conn}, Ns, Srv) ->
    #head{method = Method, target = Target} = Head,
    Us = Ns div 1000,
    Peer = erlane_http_io:peer(Conn),
    ok = log(Status, Sent, Head, Peer, Us, Srv),
    event(request_done, #{method => Method, target => Target, status => Status, sent => Sent,
                          duration_us => Us, peer => Peer}, Srv).

log(_, _, _, _, _, #srv{log = none}) -> ok;
log(Status, Sent, Head, Peer, Us, #srv{log = Log, log_query = Query}) ->
    #head{method = Method, target = Target, version = Version, headers = Headers} = Head,
    erlane_http_log:write(Log, #{time => erlang:system_time(second), peer => Peer,
                                 method => Method, target => logged(Target, Query),
                                 version => Version, status => Status, sent => Sent,
                                 duration_us => Us, referer => field(<<"referer">>, Headers),
                                 agent => field(<<"user-agent">>, Headers)}).

logged(Target, true) -> binary:copy(Target);
logged(Target, false) -> binary:copy(hd(binary:split(Target, <<"?">>))).

%% A line that waits to be written must not keep all that was read.
field(Name, Headers) -> binary:copy(proplists:get_value(Name, Headers, <<>>)).

%% @doc A request was refused, for its form or its slowness: that of a head, or bytes that are
%% none. So many bytes were the answer.
-spec refused(400..599, Why :: term(), Sent :: non_neg_integer(), #head{} | binary(), #conn{}) ->
          ok.
refused(Status, Why, Sent, What, #conn{srv = Srv} = Conn) ->
    Event = case Status of
                408 -> timeout;
                _ -> bad_request
            end,
    ok = erlane_http_metrics:event(Srv#srv.metrics, Event),
    ok = event(Event, #{status => Status, reason => Why}, Srv),
    case Srv of
        #srv{log = none} -> ok;
        _ -> log(Status, Sent, head(What), erlane_http_io:peer(Conn), 0, Srv)
    end.

head(#head{} = Head) -> Head;
head(Bytes) ->
    %% Not all of it: it may be as long as a head may be.
    [Line | _] = binary:split(Bytes, [<<"\r">>, <<"\n">>]),
    #head{method = <<>>, target = binary:part(Line, 0, min(?MAX_LINE, byte_size(Line))),
          path = <<>>}.

%% @doc A handler crashed.
-spec crashed(error | exit | throw, Reason :: term(), Stack :: list(), #req{}, #srv{}) -> ok.
crashed(Class, Reason, Stack, #req{head = #head{method = Method}}, Srv) ->
    {Why, Where} = erlane_http_crash:report(Reason, Stack),
    ?LOG_ERROR("http ~ts: ~ts: the handler crashed: ~0tp:~0tP~n~0tP",
               [Srv#srv.name, Method, Class, Why, ?LOG_DEPTH, Where, ?LOG_DEPTH]),
    crash(Class, Why, Where, Srv).

crash(Class, Why, Where, #srv{metrics = Metrics} = Srv) ->
    ok = erlane_http_metrics:event(Metrics, crashed),
    event(crashed, #{class => Class, reason => Why, stacktrace => Where}, Srv).

%% @doc The process of a connection was ended by another one: a link, a kill. Nobody has seen to
%% its client.
-spec died(Reason :: term(), #srv{}) -> ok.
died({shutdown, stalled}, Srv) ->
    ok = erlane_http_metrics:event(Srv#srv.metrics, timeout),
    event(closed, #{reason => cut}, Srv);
died(Reason, Srv) ->
    {Why, Where} = case Reason of
                       {R, [{_, _, _, _} | _] = Stack} -> erlane_http_crash:report(R, Stack);
                       _ -> erlane_http_crash:report(Reason, [])
                   end,
    ?LOG_ERROR("http ~ts: a connection's process was ended: ~0tP~n~0tP",
               [Srv#srv.name, Why, ?LOG_DEPTH, Where, ?LOG_DEPTH]),
    crash(exit, Why, Where, Srv).

%% @doc Tells the handler, if it wants to know.
-spec event(atom(), map(), #srv{}) -> ok.
event(_, _, #srv{event = false}) -> ok;
event(Name, Data, #srv{handler = Module, args = Args, name = Listener}) ->
    _ = try Module:event(Name, Data, Args)
        catch Class:Reason:Stack ->
            {Why, Where} = erlane_http_crash:report(Reason, Stack),
            ?LOG_ERROR("http ~ts: event ~ts: ~0tp:~0tP~n~0tP",
                       [Listener, Name, Class, Why, ?LOG_DEPTH, Where, ?LOG_DEPTH])
        end,
    ok.
