// A chat whose id is in the address: a reload shows its messages, its open approvals, and goes on with a running turn.
import { useChat } from "@ai-sdk/react";
import { DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses } from "ai";
import { useState } from "react";
import { createRoot } from "react-dom/client";

const API = "/api/chat";
const id = location.hash.slice(1) || crypto.randomUUID();
location.hash = id;

function Call({ part, answer }) {
  const asks = part.state === "approval-requested";
  return (
    <div className="call">
      {part.toolName}({JSON.stringify(part.input)}): {part.output ? String(part.output) : part.errorText ?? part.state}
      {asks && <button onClick={() => answer({ id: part.approval.id, approved: true })}>Approve</button>}
      {asks && <button onClick={() => answer({ id: part.approval.id, approved: false })}>Reject</button>}
    </div>
  );
}

function Chat({ loaded }) {
  const [text, setText] = useState("");
  const [progress, setProgress] = useState("");
  const chat = useChat({
    id,
    messages: loaded,
    resume: true,
    transport: new DefaultChatTransport({ api: API }),
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
    onData: (part) => setProgress(part.data.message ?? ""),
    onFinish: () => setProgress(""),
  });
  const isRunning = chat.status === "submitted" || chat.status === "streaming";

  const send = (event) => {
    event.preventDefault();
    chat.sendMessage({ text });
    setText("");
  };
  // `stop` of the SDK is only a disconnect: the turn is stopped by the server.
  const stop = async () => {
    await fetch(`${API}/${id}/stream`, { method: "DELETE" });
    await chat.stop();
  };

  return (
    <main>
      {chat.messages.map((message) => (
        <section key={message.id} className={message.role}>
          {message.parts.map((part, number) =>
            part.type === "text" ? <p key={number}>{part.text}</p>
            : part.type === "dynamic-tool" ? <Call key={number} part={part} answer={chat.addToolApprovalResponse} />
            : null)}
        </section>
      ))}
      <p role="status">{isRunning ? `Working ${progress}` : ""}</p>
      {chat.error && <p role="alert">{chat.error.message}</p>}
      <form onSubmit={send}>
        <input aria-label="Message" value={text} onChange={(event) => setText(event.target.value)} />
        <button disabled={!text.trim()}>Send</button>
        {isRunning && <button type="button" onClick={stop}>Stop</button>}
      </form>
    </main>
  );
}

const response = await fetch(`${API}/${id}`);
createRoot(document.getElementById("page")).render(<Chat loaded={await response.json()} />);
