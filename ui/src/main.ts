import { mount } from 'svelte';
import './styles/tokens.css';
import './styles/base.css';
import './styles/parts.css';
import App from './App.svelte';
import { keys } from './lib/keys.svelte';
import { router } from './lib/router.svelte';
import { look, session } from './lib/session.svelte';

look.start();
session.start();
router.start();
keys.start();

const target = document.getElementById('app');
if (target) mount(App, { target });
