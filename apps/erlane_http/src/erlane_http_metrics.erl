%% SPDX-License-Identifier: Apache-2.0
%% @doc What a listener counts. Handles are resolved once, when it starts; a request then costs
%% some additions in memory of its own scheduler.
-module(erlane_http_metrics).

-export([new/1, request/5, received/2, sent/2, event/2, opened/1, closed/2, totals/1]).

-export_type([handles/0, event/0]).

-type event() :: bad_request | timeout | crashed | accept_error.
-opaque handles() :: {Requests :: tuple(), Duration :: erlane_metrics:handle(),
                      Group :: erlane_metrics:handle(), Open :: erlane_metrics:handle()}.

-define(METHODS, [<<"GET">>, <<"HEAD">>, <<"POST">>, <<"PUT">>, <<"DELETE">>, <<"OPTIONS">>,
                  <<"other">>]).
-define(CLASSES, [<<"1xx">>, <<"2xx">>, <<"3xx">>, <<"4xx">>, <<"5xx">>]).

%% Places in the group.
-define(ACCEPTED, 1).
-define(RECEIVED, 2).
-define(SENT, 3).
-define(BAD, 4).
-define(TIMEOUT, 5).
-define(CRASHED, 6).
-define(ACCEPT_ERROR, 7).

%% @doc The series of a listener.
-spec new(atom()) -> handles().
new(Name) ->
    Listener = atom_to_binary(Name),
    Requests = erlane_metrics:counter(
                 #{name => <<"erlane_http_requests">>, help => <<"Requests answered">>,
                   labels => [<<"listener">>, <<"method">>, <<"status">>]}),
    Duration = erlane_metrics:histogram(
                 #{name => <<"erlane_http_request_duration">>, unit => <<"seconds">>,
                   help => <<"Time from the last byte of a head to the last of its answer">>,
                   labels => [<<"listener">>]}),
    Group = erlane_metrics:group(
              #{name => <<"erlane_http">>, help => <<"HTTP server">>,
                labels => [<<"listener">>],
                counters => [{<<"accepted">>, <<"Connections accepted">>},
                             {<<"received_bytes">>, <<"Bytes received">>},
                             {<<"sent_bytes">>, <<"Bytes of answers">>},
                             {<<"bad_requests">>, <<"Requests refused for their form">>},
                             {<<"timeouts">>, <<"Connections that were too slow">>},
                             {<<"crashes">>, <<"Handlers that crashed">>},
                             {<<"accept_errors">>, <<"Times that accept failed">>}]}),
    Open = erlane_metrics:gauge(
             #{name => <<"erlane_http_open_connections">>, help => <<"Connections that are open">>,
               mode => updown, labels => [<<"listener">>]}),
    %% A listener that crashed has left its connections counted.
    _ = erlane_metrics:delete(Open, [Listener]),
    {list_to_tuple([erlane_metrics:handle(Requests, [Listener, Method, Class])
                    || Method <- ?METHODS, Class <- ?CLASSES]),
     erlane_metrics:handle(Duration, [Listener]),
     erlane_metrics:handle(Group, [Listener]),
     erlane_metrics:handle(Open, [Listener])}.

%% @doc A request was answered: after so many nanoseconds, with so many bytes.
-spec request(handles(), Method :: binary(), 100..999, integer(), non_neg_integer()) -> ok.
request({Requests, Duration, Group, _}, Method, Status, Ns, Sent) ->
    ok = erlane_metrics:inc(element(row(Method) + class(Status), Requests)),
    ok = erlane_metrics:observe(Duration, Ns),
    erlane_metrics:add(Group, ?SENT, Sent).

row(<<"GET">>) -> 0;
row(<<"HEAD">>) -> 5;
row(<<"POST">>) -> 10;
row(<<"PUT">>) -> 15;
row(<<"DELETE">>) -> 20;
row(<<"OPTIONS">>) -> 25;
row(_) -> 30.

class(Status) when Status < 200 -> 1;
class(Status) when Status < 300 -> 2;
class(Status) when Status < 400 -> 3;
class(Status) when Status < 500 -> 4;
class(_) -> 5.

%% @doc Bytes came.
-spec received(handles(), non_neg_integer()) -> ok.
received({_, _, Group, _}, Bytes) -> erlane_metrics:add(Group, ?RECEIVED, Bytes).

%% @doc Bytes were sent that are no answer's.
-spec sent(handles(), non_neg_integer()) -> ok.
sent({_, _, Group, _}, Bytes) -> erlane_metrics:add(Group, ?SENT, Bytes).

%% @doc Something went wrong.
-spec event(handles(), event()) -> ok.
event({_, _, Group, _}, bad_request) -> erlane_metrics:add(Group, ?BAD, 1);
event({_, _, Group, _}, timeout) -> erlane_metrics:add(Group, ?TIMEOUT, 1);
event({_, _, Group, _}, crashed) -> erlane_metrics:add(Group, ?CRASHED, 1);
event({_, _, Group, _}, accept_error) -> erlane_metrics:add(Group, ?ACCEPT_ERROR, 1).

%% @doc A connection was accepted.
-spec opened(handles()) -> ok.
opened({_, _, Group, Open}) ->
    ok = erlane_metrics:add(Group, ?ACCEPTED, 1),
    erlane_metrics:inc(Open).

%% @doc So many connections have ended.
-spec closed(handles(), non_neg_integer()) -> ok.
closed({_, _, _, Open}, N) -> erlane_metrics:add(Open, -N).

%% @doc The sums that a listener's info has.
-spec totals(handles()) -> #{atom() => non_neg_integer()}.
totals({Requests, _, Group, Open}) ->
    {Accepted, Received, Sent, Bad, Timeouts, Crashes, Errors} = erlane_metrics:value(Group),
    #{connections => erlane_metrics:value(Open), accepted => Accepted,
      received_bytes => Received, sent_bytes => Sent, bad_requests => Bad,
      timeouts => Timeouts, crashes => Crashes, accept_errors => Errors,
      requests => lists:sum([erlane_metrics:value(H) || H <- tuple_to_list(Requests)])}.
