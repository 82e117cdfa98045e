import { login } from './actions';

export default function Page({ searchParams }) {
  return (
    <form action={login}>
      {searchParams.failed && <p>Name and password do not fit.</p>}
      <input name="name" required />
      <input name="password" type="password" required />
      <button>Log in</button>
    </form>
  );
}
